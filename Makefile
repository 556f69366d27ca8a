# hutch: thin, dependency-free build. One static library per folder of src/,
# linked into the programs of src/bin/. `make B=dir` builds somewhere else.
#
#   make            build/{hutchd,hutch,hutch-spawn,hutch-egress,hutch-agent,hutch-untar}
#   make SAN=address,undefined B=build-asan    the same with sanitizers
#   make COV=1 B=build-cov                     with coverage
#   make CC=clang
#   make help       what else there is

.DEFAULT_GOAL := all
B ?= build
CC ?= gcc
ifeq ($(origin CC),default)
CC := gcc
endif
VERSION := 0.1.0

comma := ,
WARN := -Wall -Wextra -Wno-unknown-warning-option -Wno-format-truncation -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wformat=2 -Wimplicit-fallthrough
# Debian's triplet of the machine that the programs are for; names its own include folder.
ifndef MULTIARCH
MULTIARCH := $(or $(shell $(CC) -print-multiarch 2>/dev/null),$(shell gcc -print-multiarch 2>/dev/null))
endif
HARD_x86_64  := -fcf-protection
HARD_aarch64 := -mbranch-protection=standard
HARD := -fstack-protector-strong -fPIE $(HARD_$(firstword $(subst -, ,$(MULTIARCH)))) -D_FORTIFY_SOURCE=3
CFLAGS ?= -O2 -g
CPPFLAGS += -D_GNU_SOURCE -DHUTCH_VERSION='"$(VERSION)"' -Isrc -I$(B)/gen
# Where the clone lies is in no program: the same source makes the same bytes everywhere.
ANYWHERE := $(if $(COV),,-ffile-prefix-map=$(CURDIR)=.)
ALL_CFLAGS := -std=gnu17 $(WARN) $(CFLAGS) $(ANYWHERE)
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
HOST_DIRS   := base crypto wire json loop tls http gate store spawn tier image core api cli
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

# Flags of the libraries: pkg-config's where there is one, else as Debian has them.
PKG_CONFIG ?= pkg-config
pc = $(or $(shell $(PKG_CONFIG) --libs $(1) 2>/dev/null),$(2))
CPPFLAGS   += $(shell $(PKG_CONFIG) --cflags libevent jansson sqlite3 openssl libarchive zlib 2>/dev/null)
PC_event   := $(call pc,libevent_core libevent_pthreads libevent_extra,-levent_core -levent_pthreads -levent_extra)
PC_json    := $(call pc,jansson,-ljansson) -lm
PC_crypto  := $(call pc,libcrypto,-lcrypto)
PC_ssl     := $(call pc,libssl libcrypto,-lssl -lcrypto)
PC_zlib    := $(call pc,zlib,-lz)
PC_archive := $(call pc,libarchive,-larchive)
PC_daemon  := $(PC_event) $(PC_json) $(call pc,sqlite3,-lsqlite3) $(PC_ssl) $(PC_zlib) -lpthread
host_libs   = $(patsubst %,$(B)/lib%.a,$(1))

PROGRAMS := hutchd hutch hutch-spawn hutch-egress hutch-agent hutch-untar hutch-zygote.so
.PHONY: all deps demo test test-stock unit e2e runsc bench lint fuzz install uninstall deb dist help clean
all: $(PROGRAMS:%=$(B)/%)

$(B)/obj/%.o: src/%.c Makefile
	@mkdir -p $(@D)
	@echo "  CC     $<"
	@$(CC) $(CPPFLAGS) $(ALL_CFLAGS) $(HARD) -MMD -MP -c $< -o $@

$(B)/obj/api/mcp/tools_text.o: src/api/mcp/tools.json

# The static programs: musl, no sanitizer, no PIE tables to relocate at start.
SCC := musl-gcc
$(B)/sobj/%.o: src/%.c Makefile
	@mkdir -p $(@D)
	@echo "  SCC    $<"
	@$(SCC) $(CPPFLAGS) -std=gnu17 $(WARN) -O2 -g $(ANYWHERE) $(if $(WERROR),-Werror) -fstack-protector-strong -idirafter /usr/include -idirafter /usr/include/$(MULTIARCH) -MMD -MP -c $< -o $@

# The commit, for `hutch version`: in one object, which is compiled again when it changes.
COMMIT := $(shell tools/version)
comma  := ,
empty  :=
space  := $(empty) $(empty)
VERSION_OBJ := $(B)/obj/base/version.o $(B)/sobj/base/version.o
$(VERSION_OBJ): CPPFLAGS += $(if $(COMMIT),-DHUTCH_COMMIT='" ($(subst $(space),$(comma) ,$(COMMIT)))"')
$(VERSION_OBJ): $(B)/gen/commit
$(B)/gen/commit: FORCE
	@mkdir -p $(@D)
	@[ "$$(cat $@ 2>/dev/null)" = "$(COMMIT)" ] || echo "$(COMMIT)" >$@
.PHONY: FORCE

-include $(shell find $(B) -name '*.d' -type f 2>/dev/null)

DAEMON_LIBS := api core gate image tier spawn store http tls json loop wire crypto base
$(B)/hutchd: $(B)/obj/bin/hutchd.o $(call host_libs,$(DAEMON_LIBS))
	@echo "  LINK   $@"
	@$(CC) $(LDFLAGS) -o $@ $< -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(PC_daemon)
$(B)/hutch: $(B)/obj/bin/hutch.o $(call host_libs,cli http tls json loop crypto base)
	@echo "  LINK   $@"
	@$(CC) $(LDFLAGS) -o $@ $< -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(PC_event) $(PC_json) $(PC_ssl) $(PC_zlib) -lpthread
$(B)/hutch-untar: $(B)/obj/bin/hutch-untar.o $(call host_libs,image json crypto base)
	@echo "  LINK   $@"
	@$(CC) $(LDFLAGS) -o $@ $< -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(PC_archive) $(PC_json) $(PC_crypto)
# The jail's host build: the gate confines itself with it.
EGRESS_JAIL := $(B)/obj/jail/seccomp.o $(B)/obj/jail/privs.o
$(B)/hutch-egress: $(B)/obj/bin/hutch-egress.o $(EGRESS_JAIL) $(call host_libs,gate http json loop wire crypto base)
	@echo "  LINK   $@"
	@$(CC) $(LDFLAGS) -o $@ $< $(EGRESS_JAIL) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(PC_event) $(PC_json) $(PC_ssl) $(PC_zlib) -lpthread
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
	@$(CC) -D_GNU_SOURCE -Isrc -std=gnu17 $(WARN) $(if $(WERROR),-Werror) -O2 -g $(ANYWHERE) -ffreestanding -fno-stack-protector -fPIC -fvisibility=hidden -shared -nostdlib -Wl,-z,relro,-z,now,-z,noexecstack -o $@ $<

# ---- unit tests: tests/unit/<folder>/test_*.c, each a program -----------------------------------------------------
UNIT_SRC := $(sort $(wildcard tests/unit/*/test_*.c))
UNIT     := $(patsubst tests/unit/%.c,$(B)/unit/%,$(UNIT_SRC))
UNIT_LIBS_base := base
UNIT_LIBS_wire := wire base
UNIT_LIBS_json := json base
UNIT_LIBS_http := http json loop base
UNIT_LIBS_tls := tls http loop crypto base
UNIT_LIBS_loop := loop base
UNIT_LIBS_gate := gate http json loop wire crypto base
UNIT_LIBS_store := store loop base
UNIT_LIBS_image := image json crypto base
UNIT_LIBS_tier := tier spawn json loop wire crypto base
UNIT_LIBS_core := core gate http tls tier image spawn store json loop wire crypto base
UNIT_LIBS_life := $(UNIT_LIBS_core)
UNIT_LIBS_api := api core gate tier image spawn store http tls json loop wire crypto base
UNIT_LIBS_guest := wire base
UNIT_LIBS_jail := wire base
UNIT_LIBS_spawn := wire loop base
UNIT_LIBS_cli := cli http tls json loop crypto base
UNIT_LIBS_crypto := crypto base
UNIT_SYS := $(PC_daemon) $(PC_ssl) $(PC_archive)
# What these tests see or move themselves: transitions, stored rows, the clock (tests/unit/life/world.h).
UNIT_LD_life := $(patsubst %,-Wl$(comma)--wrap=%,sandbox_advance store_put_sandbox store_put_snapshot vm_qemu_version clock_gettime timer_arm timer_stop)
# Code that only exists in the static programs is compiled for the host too when a test wants it.
UNIT_OBJ_guest = $(patsubst src/%.c,$(B)/obj/%.o,$(filter-out src/guest/main.c,$(wildcard src/guest/*.c)))
UNIT_OBJ_jail  = $(patsubst src/%.c,$(B)/obj/%.o,$(wildcard src/jail/*.c))
UNIT_OBJ_spawn = $(patsubst src/%.c,$(B)/obj/%.o,$(wildcard src/spawn/*.c)) $(UNIT_OBJ_jail)

.SECONDEXPANSION:
.SECONDARY:
$(B)/unit/%: tests/unit/%.c tests/test.h Makefile $$(addprefix $(B)/lib,$$(addsuffix .a,$$(UNIT_LIBS_$$(firstword $$(subst /, ,$$*))))) $$(UNIT_OBJ_$$(firstword $$(subst /, ,$$*)))
	@mkdir -p $(@D)
	@echo "  TEST   $<"
	@$(CC) $(CPPFLAGS) -Itests $(ALL_CFLAGS) $(HARD) $(LDFLAGS) -MMD -MP -MF $@.d -MT $@ -o $@ $< $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(UNIT_SYS) $(UNIT_LD_$(firstword $(subst /, ,$*)))

$(B)/unit/gate/test_gate: $(B)/hutch-egress

unit: $(UNIT) $(B)/hutch-zygote.so
	@tools/run-unit $(UNIT)

# End-to-end tests: make e2e K=timeout TIER=container FILES=tests/e2e/test_exec.py
e2e: all
	@tools/deps test
	@tools/run-e2e $(if $(K),-k "$(K)") $(if $(TIER),--tier $(TIER)) $(FILES)

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

# gVisor's program for the tests, outside the tree of the source; some minutes, with Go.
runsc: all
	@mkdir -p .cache
	@$(B)/hutch gvisor install --to $(CURDIR)/.cache/runsc

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

lint: $(B)/hutchd $(B)/apidoc
	@B=$(B) tools/lint
	@$(B)/apidoc --check docs/api.md

# The reference in docs/api.md, from the tables of the API.
.PHONY: docs
docs: $(B)/apidoc
	@$(B)/apidoc docs/api.md
$(B)/apidoc: $(B)/obj/bin/apidoc.o $(call host_libs,$(DAEMON_LIBS))
	@echo "  LINK   $@"
	@$(CC) $(LDFLAGS) -o $@ $< -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(PC_daemon)

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
	@clang $(CPPFLAGS) -std=gnu17 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -o $@ $< $(B)/fuzz/libfuzzed.a $(UNIT_SYS)
fuzz: $(FUZZ)
	@tools/fuzz $(FUZZ_SECONDS) $(FUZZ)

# ---- installing ---------------------------------------------------------------------------------------------------
# PREFIX/bin has what people type, PREFIX/sbin the daemon, LIBEXEC what only the daemon starts.
PREFIX     ?= /usr/local
SYSCONFDIR ?= /etc
LIBEXEC    := $(PREFIX)/libexec/hutch
UNITDIR    ?= $(PREFIX)/lib/systemd/system
MANDIR     := $(PREFIX)/share/man
COMPLETION := $(PREFIX)/share/bash-completion/completions/hutch $(PREFIX)/share/zsh/vendor-completions/_hutch \
              $(PREFIX)/share/fish/vendor_completions.d/hutch.fish
HELPERS    := $(filter-out hutch hutchd,$(PROGRAMS))
MANPAGES   := hutch.1 hutchd.8 hutch-spawn.8
install: all $(MANPAGES:%=$(B)/man/%) $(B)/gen/hutchd.conf
	install -d $(addprefix $(DESTDIR),$(PREFIX)/bin $(PREFIX)/sbin $(LIBEXEC) $(PREFIX)/share/hutch $(UNITDIR) $(dir $(COMPLETION)) \
	  $(MANDIR)/man1 $(MANDIR)/man8 $(SYSCONFDIR)/hutch)
	install -m 755 $(B)/hutch $(DESTDIR)$(PREFIX)/bin/
	install -m 755 $(B)/hutchd $(DESTDIR)$(PREFIX)/sbin/
	install -m 755 $(filter-out %.so,$(HELPERS:%=$(B)/%)) $(DESTDIR)$(LIBEXEC)/
	install -m 644 $(filter %.so,$(HELPERS:%=$(B)/%)) $(DESTDIR)$(LIBEXEC)/
	find $(DESTDIR)$(PREFIX)/share/hutch -mindepth 1 -delete
	cp -r share/. $(DESTDIR)$(PREFIX)/share/hutch/
	find $(DESTDIR)$(PREFIX)/share/hutch -name __pycache__ -prune -exec rm -rf {} +
	sed 's,@SBIN@,$(PREFIX)/sbin,g' tools/hutchd.service.in >$(DESTDIR)$(UNITDIR)/hutchd.service
	install -m 644 $(B)/man/hutch.1 $(DESTDIR)$(MANDIR)/man1/
	install -m 644 $(B)/man/hutchd.8 $(B)/man/hutch-spawn.8 $(DESTDIR)$(MANDIR)/man8/
	$(B)/hutch completion bash >$(DESTDIR)$(word 1,$(COMPLETION))
	$(B)/hutch completion zsh >$(DESTDIR)$(word 2,$(COMPLETION))
	$(B)/hutch completion fish >$(DESTDIR)$(word 3,$(COMPLETION))
	[ -e $(DESTDIR)$(SYSCONFDIR)/hutch/hutchd.conf ] || install -m 644 $(B)/gen/hutchd.conf $(DESTDIR)$(SYSCONFDIR)/hutch/

# What `install` put there. Settings that were changed and the state in /var/lib/hutch stay.
uninstall: $(B)/gen/hutchd.conf
	rm -f $(addprefix $(DESTDIR),$(PREFIX)/bin/hutch $(PREFIX)/sbin/hutchd $(UNITDIR)/hutchd.service $(COMPLETION) \
	  $(MANDIR)/man1/hutch.1 $(MANDIR)/man8/hutchd.8 $(MANDIR)/man8/hutch-spawn.8)
	rm -rf $(DESTDIR)$(LIBEXEC) $(DESTDIR)$(PREFIX)/share/hutch
	! cmp -s $(B)/gen/hutchd.conf $(DESTDIR)$(SYSCONFDIR)/hutch/hutchd.conf || rm -f $(DESTDIR)$(SYSCONFDIR)/hutch/hutchd.conf
	rmdir $(DESTDIR)$(SYSCONFDIR)/hutch 2>/dev/null || :

# Pages and settings come from the programs' own tables.
$(B)/man/hutch.1: $(B)/hutch
	@mkdir -p $(@D)
	@$< man >$@.new && mv $@.new $@
$(B)/man/hutchd.8: $(B)/hutchd
	@mkdir -p $(@D)
	@$< --man >$@.new && mv $@.new $@
$(B)/man/hutch-spawn.8: $(B)/hutch-spawn
	@mkdir -p $(@D)
	@$< --man >$@.new && mv $@.new $@
$(B)/gen/hutchd.conf: $(B)/hutchd
	@mkdir -p $(@D)
	@$< --settings=conf >$@.new && mv $@.new $@

# The Debian package: hutch_VERSION-REVISION_ARCH.deb in $(B). See tools/deb.
deb:
	@tools/deps deb
	@tools/deb $(B) $(VERSION)
# The source as one file, of the last commit.
dist:
	@mkdir -p $(B)
	git archive --format=tar.gz --prefix=hutch-$(VERSION)/ -o $(B)/hutch-$(VERSION).tar.gz HEAD

clean:
	rm -rf $(B)

help:
	@sed -n 's/^#   \(make.*\)/\1/p' Makefile
	@echo
	@echo 'make deps       install the Debian packages that building and running need'
	@echo 'make demo       build, start the daemon, run code in a sandbox'
	@echo 'make unit       unit tests; one of them: make build/unit/http/test_parse'
	@echo 'make e2e        end-to-end tests, as root; K=WORDS TIER=container FILES=tests/e2e/test_exec.py pick some'
	@echo 'make runsc      build gVisor for the tests of that tier; needs Go'
	@echo 'make lint       layers, headers, scripts, format of changed lines, cppcheck, clang'
	@echo 'make fuzz       every fuzzer for FUZZ_SECONDS (60)'
	@echo 'make test       everything; HUTCH_TEST_ONLY=lint,unit picks parts'
	@echo 'make bench      figures'
	@echo 'make install    to PREFIX (/usr/local), below DESTDIR; `make uninstall` takes it away'
	@echo 'make deb        a Debian package in $(B)/'
	@echo 'make dist       the source of the last commit as $(B)/hutch-$(VERSION).tar.gz'
	@echo 'make clean      remove $(B)/'
