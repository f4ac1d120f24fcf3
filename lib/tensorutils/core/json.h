/* SPDX-License-Identifier: Apache-2.0 */
/* json.h: strict JSON in (Jansson behind our limits), canonical JSON out (ours).
 *
 * Reading: UTF-8 without BOM, no duplicate keys, bounded size and depth, integers are exact
 * (never through a double), nothing after the value. Values are Jansson's `json_t`: include
 * <jansson.h> to look at them; this header only names the type.
 * Writing: keys sorted by bytes, no spaces, non-ASCII as is, \b \f \n \r \t and lower-case \u00xx
 * for other controls, reals as Python's repr: what
 * json.dumps(sort_keys=True, separators=(",", ":"), ensure_ascii=False) prints. */
#ifndef TENSORUTILS_CORE_JSON_H
#define TENSORUTILS_CORE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "attr.h"
#include "buf.h"
#include "err.h"

TU_BEGIN

struct json_t;

#define TU_JSON_DEPTH_META 16

struct tu_json_limits {
    size_t bytes;   /* longest text; 0: 16 MiB */
    unsigned depth; /* deepest nesting; 0: 64 */
    bool object;    /* the value must be an object */
    bool plain_integers; /* refuse 1.0, 1e3 and -0 where an integer is meant: any real, and -0 */
};

/* Parse n bytes; limits may be NULL. The result is released with json_decref. Errors: TU_EMETA
 * with line, column and byte offset; TU_ELIMIT; TU_ENOMEM. */
TU_API TU_MUST int tu_json_parse(struct json_t **out, const char *text, size_t n,
                                 const struct tu_json_limits *limits, struct tu_err *err);
/* A copy of v, to its depth: whole, as Jansson's own leaves out what there is no memory for. */
TU_API TU_MUST int tu_json_copy(struct json_t **out, const struct json_t *v, struct tu_err *err);
/* Append the canonical text of v. Errors: TU_EMETA for a non-finite number, TU_ENOMEM. */
TU_API TU_MUST int tu_json_dump(struct tu_buf *out, const struct json_t *v, struct tu_err *err);
/* A count: a whole number from 0, or its decimal text, as integers beyond 2^53 are written; at most
 * TU_SIZE_MAX. False where v (NULL allowed) is none. */
TU_API bool tu_json_count(const struct json_t *v, uint64_t *out);
/* Append s[n] quoted and escaped as above; each ill-formed byte becomes U+FFFD. */
TU_API TU_MUST int tu_json_string(struct tu_buf *out, const char *s, size_t n,
                                  struct tu_err *err);
/* Can a JSON value of ours hold s[n]: UTF-8 without NUL? */
TU_API bool tu_json_holds(const char *s, size_t n);
/* Values with texts from outside, for which Jansson has one answer whether memory ended or the
 * text is bad. Errors: TU_EMETA shows a text that tu_json_holds denies, TU_ENOMEM. */
TU_API TU_MUST int tu_json_text(struct json_t **out, const char *s, size_t n,
                                struct tu_err *err);
/* v, taken also on failure, under key[n] of an object, or at the end of a list. v or the
 * container may be NULL: TU_ENOMEM. */
TU_API TU_MUST int tu_json_set(struct json_t *object, const char *key, size_t n,
                               struct json_t *v, struct tu_err *err);
TU_API TU_MUST int tu_json_append(struct json_t *list, struct json_t *v, struct tu_err *err);
/* The shortest text that reads back as v, as Python's repr prints it ("0.1", "1e+16", "5.0").
 * out has room for 32 bytes. v must be finite. */
TU_API void tu_json_real(double v, char out[32]);

/* A writer for reports, whose keys stand in the order they are given. Commas and nesting are kept
 * by it; a key goes before each value inside an object. The first failure sticks and is returned
 * by tu_jw_end. Non-finite numbers become the strings "nan" "inf" "-inf", NULL null. */
struct tu_jw {
    struct tu_buf *out;
    unsigned depth;
    bool comma;
    int code;
    struct tu_err err;
};
TU_API void tu_jw_begin(struct tu_jw *w, struct tu_buf *out);
TU_API void tu_jw_open(struct tu_jw *w, const char *key, char bracket); /* '{' or '[' */
TU_API void tu_jw_close(struct tu_jw *w, char bracket);                  /* '}' or ']' */
TU_API void tu_jw_str(struct tu_jw *w, const char *key, const char *value);
TU_API void tu_jw_u64(struct tu_jw *w, const char *key, uint64_t value);
TU_API void tu_jw_i64(struct tu_jw *w, const char *key, int64_t value);
TU_API void tu_jw_real(struct tu_jw *w, const char *key, double value);
TU_API void tu_jw_bool(struct tu_jw *w, const char *key, bool value);
TU_API void tu_jw_null(struct tu_jw *w, const char *key);
TU_API void tu_jw_dims(struct tu_jw *w, const char *key, const uint64_t *dim, unsigned rank);
TU_API void tu_jw_raw(struct tu_jw *w, const char *key, const char *json); /* already JSON */
TU_API TU_MUST int tu_jw_end(struct tu_jw *w, struct tu_err *err);

TU_END

#endif
