/* SPDX-License-Identifier: Apache-2.0 */
/* core.h: the lowest room: bytes, errors, memory, files, CPUs, checksums, numbers, texts.
 *
 * Includes all of core/. Nothing here knows what a stream, a model or a command is. */
#ifndef TENSORUTILS_CORE_H
#define TENSORUTILS_CORE_H

#include "core/attr.h"
#include "core/box.h"
#include "core/buf.h"
#include "core/bytes.h"
#include "core/compare.h"
#include "core/cpu.h"
#include "core/crc32.h"
#include "core/dtype.h"
#include "core/err.h"
#include "core/float.h"
#include "core/io.h"
#include "core/job.h"
#include "core/json.h"
#include "core/linalg.h"
#include "core/mem.h"
#include "core/names.h"
#include "core/pattern.h"
#include "core/plugin.h"
#include "core/pool.h"
#include "core/rng.h"
#include "core/sha256.h"
#include "core/stats.h"
#include "core/tally.h"
#include "core/tensor.h"
#include "core/text.h"

#define TU_VERSION "0.1.0"

#endif
