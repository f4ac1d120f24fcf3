# SPDX-License-Identifier: Apache-2.0
# tensorutils: `make` builds everything into build/bin; `make help` lists the targets.
#
# Sources are found by wildcard: a new file in lib/ROOM/ or cmd/NAME/ is no edit here. Objects live
# in build/<hash of compiler and flags>/, so changed flags never mix objects; build/bin and
# build/lib point at the last one built.

CC       ?= gcc
AR       ?= ar
CFLAGS   ?= -O2 -g
PREFIX   ?= /usr/local
DESTDIR  ?=
SANITIZE ?=
COVERAGE ?=
DEV      ?=
CUDA     ?= 0
CUDA_HOME ?= /usr/local/cuda
CUDA_ARCH ?= 80 90a 100
V        ?= 0
PYTHON   ?= python3
SOVERSION := 0

ifeq ($(origin CC),default)
CC := gcc
endif

PACKAGES := zlib libarchive jansson libpcre2-8 nettle libxxhash
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
        -Wold-style-definition -Wpointer-arith -Wwrite-strings -Wvla -Wcast-align -Wformat=2 -Wundef
SAN := $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-omit-frame-pointer) $(if $(COVERAGE),--coverage)
ALL_CPPFLAGS := -D_POSIX_C_SOURCE=200809L -Ilib -Icmd $(CPPFLAGS)
ALL_CFLAGS := -std=c11 -ffp-contract=off -fPIC -fvisibility=hidden -ffile-prefix-map=$(CURDIR)=. \
        -pthread $(WARN) $(if $(DEV),-Werror) $(SAN) $(CFLAGS)
ALL_LDFLAGS := -pthread $(SAN) $(LDFLAGS)
export PATIENCE := $(if $(SANITIZE)$(COVERAGE),5,1)# of tests/run
LIBS := -lz -larchive -ljansson -lpcre2-8 -lnettle -lxxhash -ldl -lm

# Files named for an instruction set get its flags; rows of a kernel table guard their use.
FLAGS_avx2   := -mavx2 -mfma -mf16c -mbmi2
FLAGS_avx512 := $(FLAGS_avx2) -mavx512f -mavx512bw -mavx512dq -mavx512vl
FLAGS_vbmi   := $(FLAGS_avx512) -mavx512vbmi
FLAGS_amx    := $(FLAGS_avx512) -mamx-tile -mamx-int8 -mamx-bf16 -mavx512bf16

HASH := $(shell printf '%s' '$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(ALL_LDFLAGS)' | cksum | cut -d' ' -f1)
B    := build/$(HASH)
ifeq ($(V),0)
Q := @
say = @printf '  %-6s %s\n' '$(1)' '$(patsubst $(B)/%,%,$@)'
endif

ROOMS     := core draw device stream format model shard sched quant coll attn kv
LIB_SRC   := $(sort $(foreach r,$(ROOMS),$(wildcard lib/$(r)/*.c)))
MAPS      := $(sort $(wildcard lib/model/maps/*.map))
COMMON    := $(sort $(wildcard cmd/common/*.c))
ONE_FILE  := $(sort $(wildcard cmd/*.c))
MANY_FILE := $(filter-out cmd/common,$(patsubst %/main.c,%,$(sort $(wildcard cmd/*/main.c))))
COMMANDS  := $(sort $(notdir $(basename $(ONE_FILE)) $(MANY_FILE)))
UNIT_SRC  := $(sort $(wildcard tests/unit/*/*.c))
FUZZ_SRC  := $(sort $(wildcard tests/fuzz/*.c))

obj       = $(patsubst %.c,$(B)/obj/%.o,$(1))
LIB_OBJ   := $(call obj,$(LIB_SRC)) $(if $(MAPS),$(B)/obj/maps.o)
BINS      := $(addprefix $(B)/bin/,$(COMMANDS))
UNITS     := $(patsubst tests/unit/%.c,$(B)/unit/%,$(UNIT_SRC))
REPLAYS   := $(patsubst tests/fuzz/%.c,$(B)/fuzz/%,$(filter-out tests/fuzz/replay.c,$(FUZZ_SRC)))
LIB_A     := $(B)/lib/libtensorutils.a
LIB_SO    := $(B)/lib/libtensorutils.so.$(SOVERSION)

.PHONY: all help lib demo cuda check check-cuda check-unit check-cli check-all lint bench coverage coverage-of fuzz fuzz-run interop \
        completions install uninstall dist distcheck clean deps tests-bin print-build
.DEFAULT_GOAL := all
.SECONDARY:
.DELETE_ON_ERROR:

all: deps $(LIB_A) $(LIB_SO) $(BINS) $(if $(filter 1,$(CUDA)),cuda) ## build the library and every command
	@ln -sfn $(HASH)/bin build/bin; ln -sfn $(HASH)/lib build/lib; ln -sfn $(HASH) build/last

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t16

# What is missing is installed (or named) before anything is compiled.
deps:
	@tools/deps build $(CC)

$(B)/obj/%.o: %.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(FLAGS_$(lastword $(subst _, ,$(basename $(notdir $<))))) \
	    -MMD -MP -c -o $@ $<

$(B)/flags:
	@mkdir -p $(@D); printf '%s\n' '$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(ALL_LDFLAGS)' > $@

# The name maps, embedded as one table of texts.
$(B)/obj/maps.c: $(MAPS) tools/embed
	@mkdir -p $(@D)
	$(call say,EMBED)
	$(Q)tools/embed tui_maps $(MAPS) > $@
$(B)/obj/maps.o: $(B)/obj/maps.c
	$(call say,CC)
	$(Q)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) -c -o $@ $<

$(LIB_A): $(LIB_OBJ)
	@mkdir -p $(@D); rm -f $@
	$(call say,AR)
	$(Q)$(AR) rcs $@ $(LIB_OBJ)

$(LIB_SO): $(LIB_OBJ) lib/libtensorutils.map
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) -shared -Wl,-soname,libtensorutils.so.$(SOVERSION) \
	    -Wl,--version-script=lib/libtensorutils.map $(ALL_LDFLAGS) -o $@ $(LIB_OBJ) $(LIBS)
	@ln -sfn $(@F) $(B)/lib/libtensorutils.so

lib: deps $(LIB_A) $(LIB_SO) ## build the library alone

define command
$(B)/bin/$(1): $(2) $(call obj,$(COMMON)) $(LIB_A)
	@mkdir -p $$(@D)
	$$(call say,LINK)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $$@ $(2) $(call obj,$(COMMON)) $(LIB_A) $(LIBS)
endef
$(foreach c,$(ONE_FILE),$(eval $(call command,$(basename $(notdir $(c))),$(call obj,$(c)))))
$(foreach d,$(MANY_FILE),$(eval $(call command,$(notdir $(d)),$(call obj,$(sort $(wildcard $(d)/*.c))))))

# CUDA. The plug-in by nvcc, for each of CUDA_ARCH; the same kernels by the C compiler, for tests, on
# a device of fibers. Codecs give the CPU's bytes, so only attention may fuse multiply and add.
NVCC      := $(firstword $(wildcard $(CUDA_HOME)/bin/nvcc) nvcc)
CUDA_SRC  := $(sort $(wildcard lib/device/cuda/*.cu))
CUDA_OBJ  := $(patsubst lib/device/cuda/%.cu,$(B)/cuda/%.o,$(CUDA_SRC))
CUDA_SO   := $(B)/lib/tensorutils/libtensorutils-cuda.so
EMULATED  := $(B)/emulated/libtensorutils-cuda.so
EMU_SRC   := $(filter-out lib/device/cuda/device.cu,$(CUDA_SRC))
GENCODE   := $(foreach a,$(CUDA_ARCH),-gencode arch=compute_$(a),code=sm_$(a))

$(B)/cuda/%.o: lib/device/cuda/%.cu
	@mkdir -p $(@D)
	$(call say,NVCC)
	$(Q)$(NVCC) -O3 -std=c++17 $(GENCODE) $(if $(filter attn%,$*),,-fmad=false) -Ilib -Xptxas -v \
	    -Xcompiler -fPIC,-fvisibility=hidden,-Wall -MMD -MP -c -o $@ $< 2>$(@:.o=.ptxas) || \
	    { cat $(@:.o=.ptxas); false; }
$(CUDA_SO): $(CUDA_OBJ) $(B)/obj/lib/device/cuda/plugin.o
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(NVCC) -shared -cudart static -o $@ $^

cuda: $(CUDA_SO) ## build the CUDA plug-in (needs nvcc; CUDA_ARCH='90a' for one architecture)
	@mkdir -p build; ln -sfn $(HASH)/lib build/lib

$(B)/emulated/%.o: lib/device/cuda/%.cu $(B)/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) -x c $(ALL_CPPFLAGS) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<
$(EMULATED): $(patsubst lib/device/cuda/%.cu,$(B)/emulated/%.o,$(EMU_SRC)) \
             $(B)/obj/lib/device/cuda/plugin.o $(B)/obj/lib/device/cuda/emulate.o $(LIB_A)
	$(call say,LINK)
	$(Q)$(CC) -shared -Wl,--exclude-libs,ALL $(ALL_LDFLAGS) -o $@ $^ $(LIBS)

# A libnccl whose ranks are threads, for tests.
$(B)/emulated/libnccl.so.2: $(B)/obj/tests/gpu/nccl.o $(LIB_A)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) -shared -Wl,--exclude-libs,ALL $(ALL_LDFLAGS) -o $@ $^ $(LIBS)
EMULATED += $(B)/emulated/libnccl.so.2

# Tests. A unit test may include its own room's private headers; it links the archive. Those of cmd
# link the front end too.
$(B)/unit/%: $(B)/obj/tests/unit/%.o $(LIB_A)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) $(LIB_A) $(LIBS)
$(filter $(B)/unit/cmd/%,$(UNITS)): $(call obj,$(COMMON))
$(B)/fuzz/%: $(B)/obj/tests/fuzz/%.o $(B)/obj/tests/fuzz/replay.o $(LIB_A)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS)

print-build: # where this compiler and these flags put their results
	@echo $(B)

$(B)/perf/%: $(B)/obj/tests/perf/%.o $(LIB_A)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $< $(LIB_A) $(LIBS)

$(B)/gpu/%: $(B)/obj/tests/gpu/%.o $(LIB_A)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $< $(LIB_A) $(LIBS)

tests-bin: $(UNITS) $(REPLAYS) $(EMULATED)

demo: all ## the main job on the files in the tree
	@BIN=$(CURDIR)/$(B)/bin examples/demo

check: ## every test that needs neither a GPU nor Python; ends with "N passed, N failed"
	@tools/deps check $(CC)
	@$(MAKE) --no-print-directory all tests-bin
	@BUILD=$(CURDIR)/$(B) tests/run unit fuzz cli examples

check-unit: all tests-bin ## unit tests and fuzz corpora only
	@BUILD=$(CURDIR)/$(B) tests/run unit fuzz

check-cuda: cuda tests-bin ## what nvcc and ptxas say of the kernels (needs nvcc, no GPU)
	@BUILD=$(CURDIR)/$(B) tests/gpu/resources

check-cli: all $(EMULATED) ## command tests only
	@BUILD=$(CURDIR)/$(B) tests/run cli examples

check-all: all tests-bin ## check, with the slow tests and the kills
	@tools/deps check $(CC)
	@BUILD=$(CURDIR)/$(B) SLOW=1 tests/run unit fuzz cli examples

lint: all ## floors, headers, symbols, shell scripts, man pages, completions
	@tools/deps lint $(CC)
	@BUILD=$(CURDIR)/$(B) CC='$(CC)' tools/lint

coverage: ## lines and branches of lib/ that the tests of check run (of gcc: gcov)
	@tools/deps check $(CC)
	@$(MAKE) --no-print-directory COVERAGE=1 all tests-bin coverage-of

coverage-of: # a build with COVERAGE=1
	@BUILD=$(CURDIR)/$(B) tools/coverage

bench: all $(B)/perf/ceiling $(B)/perf/codec $(B)/perf/kvcache ## ratios to a ceiling or a peer measured in the same run, as JSON
	@BUILD=$(CURDIR)/$(B) tests/perf/run

fuzz: ## the fuzz targets with clang's libFuzzer, into build/fuzz
	@tools/deps fuzz $(CC)
	@tools/fuzz build

fuzz-run: fuzz ## run each for RUNS executions (default 100000)
	@tools/fuzz run $(RUNS)

interop: all ## let the real Python libraries read what we write (makes a virtual environment)
	@BINDIR=$(CURDIR)/$(B)/bin tests/interop/run

completions: all ## rewrite completions/ from the option tables
	@BIN=$(B)/bin tools/completions completions

install: all ## into DESTDIR/PREFIX
	@BUILD=$(B) DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' tools/install
uninstall:
	@BUILD=$(B) DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' tools/install --remove

dist: ## the committed tree as a tarball in build/
	@tools/dist
distcheck: ## build the tarball elsewhere, install it, test what was installed
	@tools/dist --check

clean:
	rm -rf build

-include $(shell test -d $(B) && find $(B) -name '*.d')
