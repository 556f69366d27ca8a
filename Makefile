# hutch: thin, dependency-free build. One static library per folder of src/,
# linked into the programs of src/bin/. `make B=dir` builds somewhere else.
#
#   make            build/{hutchd,hutch,hutch-spawn,hutch-egress,hutch-agent,hutch-untar}
#   make SAN=address,undefined B=build-asan    the same with sanitizers
#   make COV=1 B=build-cov                     with coverage
#   make CC=clang

.DEFAULT_GOAL := all
B ?= build
CC ?= gcc
ifeq ($(origin CC),default)
CC := gcc
endif
VERSION := 0.1.0
.DEFAULT_GOAL := all

WARN := -Wall -Wextra -Wno-unknown-warning-option -Wno-format-truncation -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wformat=2 -Wimplicit-fallthrough
HARD := -fstack-protector-strong -fPIE -fcf-protection -D_FORTIFY_SOURCE=3
CFLAGS ?= -O2 -g
CPPFLAGS += -D_GNU_SOURCE -DHUTCH_VERSION='"$(VERSION)"' -Isrc -I$(B)/gen
ALL_CFLAGS := -std=gnu17 $(WARN) $(CFLAGS)
ifdef WERROR
ALL_CFLAGS += -Werror
endif
LDFLAGS += -pie -Wl,-z,relro,-z,now
ifdef SAN
ALL_CFLAGS += -fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all
LDFLAGS += -fsanitize=$(SAN)
HARD := -fPIE
endif
ifdef COV
ALL_CFLAGS += --coverage
LDFLAGS += --coverage
HARD := -fPIE
endif

# ---- libraries: folder -> objects -------------------------------------------------------------------------------
# Folders whose code also goes into the static programs (agent, spawner) are built a second time with musl.
HOST_DIRS   := base crypto wire json loop http gate store spawn backend image core api cli
STATIC_DIRS := base wire jail spawn guest

host_src = $(filter-out src/spawn/server%.c src/spawn/op_%.c,$(shell find src/$(1) -name '*.c' 2>/dev/null))
host_obj = $(patsubst src/%.c,$(B)/obj/%.o,$(call host_src,$(1)))
stat_src = $(filter-out src/spawn/client%.c,$(shell find src/$(1) -name '*.c' 2>/dev/null))
stat_obj = $(patsubst src/%.c,$(B)/sobj/%.o,$(call stat_src,$(1)))

define host_lib
$(B)/lib$(1).a: $(call host_obj,$(1))
	@rm -f $$@
	@ar rcs $$@ $$^
endef
define stat_lib
$(B)/libs$(1).a: $(call stat_obj,$(1))
	@rm -f $$@
	@ar rcs $$@ $$^
endef
$(foreach d,$(HOST_DIRS),$(eval $(call host_lib,$(d))))
$(foreach d,$(STATIC_DIRS),$(eval $(call stat_lib,$(d))))

PC_event   := -levent_core -levent_pthreads -levent_extra
PC_daemon  := $(PC_event) -ljansson -lsqlite3 -lcrypto -lz -lm -lpthread
host_libs   = $(patsubst %,$(B)/lib%.a,$(1))

PROGRAMS := hutchd hutch hutch-spawn hutch-egress hutch-agent hutch-untar hutch-zygote.so
.PHONY: all deps demo test test-stock unit e2e bench lint fuzz install clean
all: $(PROGRAMS:%=$(B)/%)

$(B)/obj/%.o: src/%.c Makefile
	@mkdir -p $(@D)
	@echo "  CC     $<"
	@$(CC) $(CPPFLAGS) $(ALL_CFLAGS) $(HARD) -MMD -MP -c $< -o $@

# The static programs: musl, no sanitizer, no PIE tables to relocate at start.
SCC := musl-gcc
$(B)/sobj/%.o: src/%.c Makefile
	@mkdir -p $(@D)
	@echo "  SCC    $<"
	@$(SCC) $(CPPFLAGS) -std=gnu17 $(WARN) -O2 -g $(if $(WERROR),-Werror) -fstack-protector-strong -idirafter /usr/include -idirafter /usr/include/x86_64-linux-gnu -MMD -MP -c $< -o $@

-include $(shell find $(B) -name '*.d' 2>/dev/null)

$(B)/hutchd: $(B)/obj/bin/hutchd.o $(call host_libs,api core gate image backend spawn store http json loop wire crypto base)
	@echo "  LINK   $@"
	@$(CC) $(LDFLAGS) -o $@ $< -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(PC_daemon)
$(B)/hutch: $(B)/obj/bin/hutch.o $(call host_libs,cli http json loop base)
	@echo "  LINK   $@"
	@$(CC) $(LDFLAGS) -o $@ $< -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(PC_event) -ljansson -lz -lm -lpthread
$(B)/hutch-untar: $(B)/obj/bin/hutch-untar.o $(call host_libs,image json crypto base)
	@echo "  LINK   $@"
	@$(CC) $(LDFLAGS) -o $@ $< -Wl,--start-group $(filter %.a,$^) -Wl,--end-group -larchive -ljansson -lcrypto -lm
# The jail's host build: the gate confines itself with it.
EGRESS_JAIL := $(B)/obj/jail/seccomp.o $(B)/obj/jail/privs.o
$(B)/hutch-egress: $(B)/obj/bin/hutch-egress.o $(EGRESS_JAIL) $(call host_libs,gate http json loop wire crypto base)
	@echo "  LINK   $@"
	@$(CC) $(LDFLAGS) -o $@ $< $(EGRESS_JAIL) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(PC_event) -ljansson -lssl -lcrypto -lz -lm -lpthread
$(B)/hutch-spawn: $(B)/sobj/bin/hutch-spawn.o $(patsubst %,$(B)/libs%.a,spawn jail wire base)
	@echo "  LINK   $@"
	@$(SCC) -static -o $@ $< -Wl,--start-group $(filter %.a,$^) -Wl,--end-group
$(B)/hutch-agent: $(B)/sobj/bin/hutch-agent.o $(patsubst %,$(B)/libs%.a,guest wire base)
	@echo "  LINK   $@"
	@$(SCC) -static -o $@ $< -Wl,--start-group $(filter %.a,$^) -Wl,--end-group

# Goes into interpreters of whatever libc: no C library, no start files.
$(B)/hutch-zygote.so: src/zygote/zygote.c src/wire/zygote.h Makefile
	@mkdir -p $(@D)
	@echo "  LINK   $@"
	@$(CC) -D_GNU_SOURCE -Isrc -std=gnu17 $(WARN) $(if $(WERROR),-Werror) -O2 -g -ffreestanding -fno-stack-protector -fPIC -fvisibility=hidden -shared -nostdlib -Wl,-z,relro,-z,now,-z,noexecstack -o $@ $<

# ---- unit tests: tests/unit/<folder>/test_*.c, each a program -----------------------------------------------------
UNIT_SRC := $(sort $(wildcard tests/unit/*/test_*.c))
UNIT     := $(patsubst tests/unit/%.c,$(B)/unit/%,$(UNIT_SRC))
UNIT_LIBS_base := base
UNIT_LIBS_wire := wire base
UNIT_LIBS_json := json base
UNIT_LIBS_http := http json loop base
UNIT_LIBS_loop := loop base
UNIT_LIBS_gate := gate http json loop wire crypto base
UNIT_LIBS_store := store loop base
UNIT_LIBS_image := image json crypto base
UNIT_LIBS_backend := backend spawn json loop wire crypto base
UNIT_LIBS_core := core gate http backend image spawn store json loop wire crypto base
UNIT_LIBS_api := api core gate backend image spawn store http json loop wire crypto base
UNIT_LIBS_guest := wire base
UNIT_LIBS_jail := wire base
UNIT_LIBS_spawn := wire loop base
UNIT_LIBS_cli := cli http json loop base
UNIT_LIBS_crypto := crypto base
UNIT_SYS := $(PC_daemon) -lssl -larchive
# Code that only exists in the static programs is compiled for the host too when a test wants it.
UNIT_OBJ_guest = $(patsubst src/%.c,$(B)/obj/%.o,$(filter-out src/guest/main.c,$(wildcard src/guest/*.c)))
UNIT_OBJ_jail  = $(patsubst src/%.c,$(B)/obj/%.o,$(wildcard src/jail/*.c))
UNIT_OBJ_spawn = $(patsubst src/%.c,$(B)/obj/%.o,$(wildcard src/spawn/*.c)) $(UNIT_OBJ_jail)

.SECONDEXPANSION:
.SECONDARY:
$(B)/unit/%: tests/unit/%.c tests/test.h Makefile $$(addprefix $(B)/lib,$$(addsuffix .a,$$(UNIT_LIBS_$$(firstword $$(subst /, ,$$*))))) $$(UNIT_OBJ_$$(firstword $$(subst /, ,$$*)))
	@mkdir -p $(@D)
	@echo "  TEST   $<"
	@$(CC) $(CPPFLAGS) -Itests $(ALL_CFLAGS) $(HARD) $(LDFLAGS) -MMD -MP -MF $@.d -MT $@ -o $@ $< $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(UNIT_SYS)

$(B)/unit/gate/test_gate: $(B)/hutch-egress

unit: $(UNIT) $(B)/hutch-zygote.so
	@tools/run-unit $(UNIT)

# ---- what people type -------------------------------------------------------------------------------------------
deps:
	@tools/deps run

demo:
	@tools/demo --check
	@tools/deps run
	@$(MAKE) --no-print-directory -j$$(nproc) all
	@tools/demo $(B)

# Everything: lint, unit tests plain and with sanitizers, fuzzers for a moment, end-to-end and security tests on both tiers.
test:
	@tools/deps test
	@tools/test

# Debian 12 and 13 with their own kernels, KVM and cgroup v2, in emulated machines: `make demo` from nothing and most end-to-end
# tests. Hours; `make test` has the short form.
test-stock:
	@tools/deps test
	@$(MAKE) --no-print-directory -j$$(nproc) WERROR=1 all
	@tools/run-stock --long

# The README's promise where nothing is installed: `make demo` in a bare Debian of each suite. Needs root; some minutes each.
.PHONY: test-bare
test-bare:
	@for suite in $(or $(SUITE),bookworm trixie); do tools/bare-root "$$suite" sh -c 'make demo && build/hutch down' || exit 1; done

bench:
	@tools/deps bench
	@$(MAKE) --no-print-directory -j$$(nproc) all $(B)/bench/gate/gate_bench
	@python3 bench/bench.py

# The network gate against a plain veth pair; needs root.
$(B)/bench/gate/gate_bench: bench/gate_bench.c tests/unit/gate/world.h tests/test.h $(B)/hutch-egress $(call host_libs,gate http json loop wire crypto base)
	@mkdir -p $(@D)
	@$(CC) $(CPPFLAGS) -Itests $(ALL_CFLAGS) -Wno-unused-function -Wno-unused-variable $(HARD) $(LDFLAGS) -o $@ $< -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(UNIT_SYS)
.PHONY: bench-gate
bench-gate: $(B)/bench/gate/gate_bench
	@$<

lint:
	@tools/lint

# ---- fuzzers: tests/fuzz/fuzz_<what>.c with libFuzzer; FUZZ_SECONDS each ----------------------------------------
FUZZ_SECONDS ?= 60
FUZZ := $(patsubst tests/fuzz/%.c,$(B)/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_SRC := $(filter-out src/bin/% src/cli/% src/zygote/% src/spawn/% src/jail/% src/core/% src/api/% src/guest/main.c,$(shell find src -name '*.c'))
$(B)/fuzz/%.o: src/%.c
	@mkdir -p $(@D)
	@clang $(CPPFLAGS) -std=gnu17 -O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -MMD -MP -c $< -o $@
$(B)/fuzz/libfuzzed.a: $(patsubst src/%.c,$(B)/fuzz/%.o,$(FUZZ_SRC))
	@rm -f $@
	@ar rcs $@ $^
$(B)/fuzz/fuzz_%: tests/fuzz/fuzz_%.c $(B)/fuzz/libfuzzed.a
	@echo "  FUZZ   $<"
	@clang $(CPPFLAGS) -std=gnu17 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -o $@ $< $(B)/fuzz/libfuzzed.a $(PC_daemon) -lssl -larchive
fuzz: $(FUZZ)
	@tools/fuzz $(FUZZ_SECONDS) $(FUZZ)

PREFIX ?= /usr/local
install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/hutch $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	install -m 755 $(PROGRAMS:%=$(B)/%) $(DESTDIR)$(PREFIX)/bin/
	cp -r share/. $(DESTDIR)$(PREFIX)/share/hutch/
	$(B)/hutch completion bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/hutch

clean:
	rm -rf $(B)
