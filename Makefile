# SPDX-License-Identifier: ISC
#
# GNU make.  This one file is used in two ways.
#
# In the source folder it only forwards: it makes the build folder ($(BUILD),
# build unless set), configures there if nobody has, and runs the goals there.
# In a build folder a two-line Makefile, written by configure, includes
# config.mk and then this file; everything is made by names relative to that
# folder.

MAKEFLAGS += --no-builtin-rules
.SUFFIXES:
.DEFAULT_GOAL := all

# The goals beside deps say which packages are wanted; DEPS=ci adds a set.
deps_sets = run $(if $(filter check% fuzz%,$(MAKECMDGOALS)),test) \
	$(if $(filter check-wine% check-all,$(MAKECMDGOALS)),wine) \
	$(if $(filter bench,$(MAKECMDGOALS)),bench) $(DEPS)

# Goals that a system without the daemon (Windows) can't reach.
daemon_tests := check-unit check-e2e check-kqueue check-kqueue-e2e fuzz-smoke fuzz-run \
	check-asan-io check-asan-unit check-asan-e2e check-tsan-io check-tsan-e2e
daemon_goals := run install bench $(daemon_tests)

ifneq ($(origin RW_CONFIGURED),file)
# ---- in the source folder ----------------------------------------------------

BUILD ?= build
here := deps help tidy distclean
asked := $(or $(MAKECMDGOALS),all)
forwarded := $(filter-out $(here),$(asked))

.PHONY: $(here) $(forwarded) all forward

$(forwarded): forward
	@:

# deps brings the compiler and the libraries, so it comes before configure, and
# goals made by a make that was started after both, also under -j.
forward: $(filter deps,$(asked))
ifeq ($(asked),clean)
	@if [ ! -f "$(BUILD)/config.mk" ]; then exit 0; fi; \
	    exec $(MAKE) --no-print-directory -C "$(BUILD)" clean
else
	@if [ ! -f "$(BUILD)/config.mk" ] || [ ! -f "$(BUILD)/Makefile" ]; then \
		src=`pwd` && mkdir -p "$(BUILD)" && cd "$(BUILD)" && sh "$$src/configure"; \
	elif [ -n "$(filter deps,$(asked))" ]; then sh "$(BUILD)/config.status" --quiet; fi
	+@$(MAKE) --no-print-directory -C "$(BUILD)" $(forwarded)
endif

deps:
	@sh contrib/deps $(deps_sets)

tidy:
	@sh contrib/tidy .

distclean:
	@if [ -f "$(BUILD)/config.status" ]; then rm -rf "$(BUILD)"; fi

help:
	@sed -n 's/^#: //p' Makefile

else ifneq ($(filter deps,$(MAKECMDGOALS)),)
# ---- in a build folder, deps among the goals ---------------------------------

others := $(filter-out deps,$(MAKECMDGOALS))
.PHONY: deps $(others) after-deps

$(others): after-deps
	@:
after-deps: deps
	+@$(MAKE) --no-print-directory $(others)
deps:
	@sh $(srcdir)/contrib/deps $(deps_sets)
	@sh ./config.status --quiet

else ifneq ($(and $(filter no,$(DAEMON)),$(filter $(daemon_goals),$(MAKECMDGOALS))),)
# ---- in a build folder without the daemon, asked for what needs it -----------

others := $(filter-out $(daemon_goals),$(MAKECMDGOALS))
.PHONY: $(MAKECMDGOALS) the-others

$(others): the-others
	@:
the-others:
	+@$(MAKE) --no-print-directory $(others)
$(filter $(daemon_tests),$(MAKECMDGOALS)):
	@echo "SKIP: $@: not for this host: only the I/O layer and its suite are built"
$(filter run install,$(MAKECMDGOALS)):
	@echo "$@: the daemon is not built for this host: only the I/O layer and its suite" >&2; exit 1

else
# ---- in a build folder -------------------------------------------------------

S := $(srcdir)
comma := ,
V ?= 0
ifeq ($(V),0)
say = @printf '  %-7s %s\n' $(1) $(2);
endif

# Paths without the source folder in front.
in_src = $(patsubst $(S)/%,%,$(wildcard $(addprefix $(S)/,$(1))))
objs = $(patsubst %.c,obj/%.o,$(1))

# -- sources

readiness := $(if $(filter epoll kqueue,$(BACKENDS)),yes)
backend_c := $(call in_src,backends/*.c)
backend_c := $(filter-out $(if $(filter io_uring,$(BACKENDS)),,backends/uring%) \
	$(if $(readiness),,backends/ready%) \
	$(if $(readiness)$(filter io_uring,$(BACKENDS)),,backends/pipe% backends/dgram%) \
	$(if $(filter epoll io_uring,$(BACKENDS)),,backends/alarm%) \
	$(if $(filter epoll,$(BACKENDS)),,backends/epoll%) \
	$(if $(filter kqueue,$(BACKENDS)),,backends/kqueue%) \
	$(if $(filter iocp,$(BACKENDS)),,backends/iocp%),$(backend_c)) \
	$(if $(RW_SHIM),test/shim/kevent.c)

main_c := src/main.c
daemon_c := $(filter-out $(main_c),$(call in_src,src/*.c src/*/*.c))
io_test_c := $(call in_src,test/io/*.c)
unit_test_c := $(call in_src,test/unit/*.c)
fuzz_c := $(filter-out fuzz/driver.c,$(call in_src,fuzz/*.c))
man_pages := $(call in_src,man/*.[1-8])

bin := ringway$(EXEEXT)
io_suite := test/io_suite$(EXEEXT)
fuzz_bins := $(fuzz_c:%.c=%)

# -- rules

includes = -I. -I$(S)/include -I$(S)/src -I$(S)/backends $(if $(RW_SHIM),-I$(S)/test/shim)
compile = $(CC) -include config.h $(includes) $(CPPFLAGS) $(RW_CFLAGS) $(CFLAGS)
link = $(CC) $(CFLAGS) $(RW_LDFLAGS) $(LDFLAGS)
libs = $(RW_LIBS) $(LIBS)

.PHONY: all programs
ifeq ($(DAEMON),no)
all: $(io_suite)
programs: all
else
all: $(bin)
programs: all $(io_suite) $(if $(filter yes,$(CRITERION)),test/unit_suite) $(fuzz_bins)
endif

$(bin): $(call objs,$(main_c)) libringway.a
	$(call say,LINK,$@)$(link) -o $@ $^ $(libs)

libringway.a: $(call objs,$(daemon_c) $(backend_c))
	$(call say,AR,$@)rm -f $@ && $(AR) rcs $@ $(filter %.o,$^)

# A list of sources that has shrunk or grown makes archive and programs anew.
sources := $(sort $(daemon_c) $(backend_c) $(io_test_c) $(unit_test_c))
ifneq ($(sources),$(file <obj/sources))
$(shell mkdir -p obj)
$(file >obj/sources,$(sources))
endif
libringway.a test/unit_suite $(io_suite): obj/sources

obj/test/unit/%.o: more = $(CRITERION_CFLAGS) -I$(S)/test/unit
obj/test/io/%.o: more = -I$(S)/test/io

obj/%.o: $(S)/%.c config.mk
	@mkdir -p $(@D)
	$(call say,CC,$*.c)$(compile) $(more) -MMD -MP -c -o $@ $<

-include $(patsubst %.c,obj/%.d,$(main_c) $(sources))

config.h config.mk: config.stamp
	@:
config.stamp: $(S)/configure
	sh ./config.status

# -- tests

# Absolute, for tests that read files of the tree.
export RW_SRCDIR := $(shell cd "$(S)" && pwd)
export RW_SANITIZE := $(SANITIZE)
export UBSAN_OPTIONS := print_stacktrace=1:$(UBSAN_OPTIONS)
tally = sh $(S)/test/tally.sh
log_dir = test/log

$(io_suite): $(call objs,$(io_test_c) $(backend_c))
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(link) -o $@ $(filter %.o,$^) $(libs)

test/unit_suite: $(call objs,$(unit_test_c)) libringway.a
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(link) -o $@ $(filter %.o %.a,$^) $(CRITERION_LIBS) $(libs)

# The ring is run as chosen, without its shared receive ring, and at each step
# of the ladder of set-up flags.
io_runs := $(foreach b,$(BACKENDS),"-b $(b)") \
	$(if $(filter io_uring,$(BACKENDS)),"-b io_uring --no-ring" \
	    "-b io_uring --uring-level 0" "-b io_uring --uring-level 1" \
	    "-b io_uring --uring-level 2")

.PHONY: check-io check-wine check-wine-mutants check-unit check-e2e check-mutants check-kqueue check-kqueue-e2e fuzz-smoke fuzz-run
ifeq ($(SYSTEM),windows)
check-wine: check-io
check-wine-mutants: check-mutants
check-io: $(io_suite)
	@sh $(S)/test/netns.sh sh $(S)/test/io-wine.sh ./$(io_suite) -b iocp
else
check-io: $(io_suite)
	@sh $(S)/test/netns.sh sh $(S)/test/io.sh ./$(io_suite) $(io_runs)

# The iocp backend: built for Windows inside this build, run by wine.
check-wine check-wine-mutants:
	+@why='there is no wine64'; \
	for w in wine64 /usr/lib/wine/wine64 /usr/lib64/wine/wine64 wine; do \
		if command -v $$w >/dev/null 2>&1; then why=; break; fi; \
	done; \
	command -v $(wine_host)-gcc >/dev/null 2>&1 || why='there is no $(wine_host)-gcc'; \
	[ -z "$$why" ] || why="$$why ('make deps $@' installs it)"; \
	case `uname -m` in x86_64 | amd64) ;; *) why='the suite is built for x86-64' ;; esac; \
	if [ -n "$$why" ]; then echo "SKIP: $@: $$why"; \
	else $(MAKE) --no-print-directory $@-here; fi

.PHONY: check-wine-here check-wine-mutants-here
check-wine-here: goal = check-io
check-wine-mutants-here: goal = check-mutants
# What the command line sets (CC=clang) is for this system.
check-wine-here check-wine-mutants-here: wine/config.mk
	+@MAKEFLAGS="$${MAKEFLAGS%%-- *}" $(MAKE) --no-print-directory -C wine V=$(V) $(goal)
endif

# The kqueue backend over test/shim, with its mutants, and its branches for
# systems that are not here, by syntax alone.
check-kqueue: kqueue/config.mk
	@sh $(S)/test/shim/syntax.sh $(S) $(CC)
	+@$(MAKE) --no-print-directory -C kqueue check-io check-mutants

ifeq ($(CRITERION),yes)
check-unit: test/unit_suite
	@sh $(S)/test/netns.sh sh $(S)/test/unit.sh ./test/unit_suite
	@sh $(S)/test/ringway-reload.sh
else
check-unit:
	@echo "SKIP: check-unit: criterion was not found by configure ('make deps check' installs it)"
endif

check-e2e: $(bin) $(if $(filter linux,$(SYSTEM)),bench/load bench/bare)
	@RINGWAY="$(CURDIR)/$(bin)" RINGWAY_BACKENDS="$(BACKENDS)" CC="$(CC)" \
	    sh $(S)/test/netns.sh sh $(S)/test/e2e.sh $(PYTEST_ARGS)

# Each deliberate fault of include/io/mutant.h must make the suite of the
# contract fail.  Only backends/ and test/io are built, quickly.
mutants := $(shell sed -n 's/^.define[ 	]*IO_MUTANT_\([A-Z0-9_]*\)[ 	][ 	]*[1-9].*/\1/p' $(S)/include/io/mutant.h 2>/dev/null)
mutant_c := $(io_test_c) $(backend_c)

define mutant_rules
mutant/$(1)/obj/%.o: $(S)/%.c config.mk
	@mkdir -p $$(@D)
	$$(call say,CC,"$$*.c ($(1))")$$(compile) -I$$(S)/test/io -O0 -w -U_FORTIFY_SOURCE \
	    -DIO_MUTANT=IO_MUTANT_$(1) -MMD -MP -c -o $$@ $$<
mutant/$(1)/io_suite$(EXEEXT): $(mutant_c:%.c=mutant/$(1)/obj/%.o)
	$$(call say,LINK,$$@)$$(link) -o $$@ $$^ $$(libs)
-include $(mutant_c:%.c=mutant/$(1)/obj/%.d)
endef
$(foreach m,$(mutants),$(eval $(call mutant_rules,$(m))))

check-mutants: $(io_suite) $(mutants:%=mutant/%/io_suite)
	@sh $(S)/test/netns.sh sh $(S)/test/mutants.sh "$(BACKENDS)" ./test/io_suite $(mutants)

# Windows: the name without .exe is a script that asks wine.  A case has wine's
# time limit, not the short one of mutants.sh: slow is not caught.
ifeq ($(EXEEXT),.exe)
check-mutants: test/io_suite
test/io_suite $(mutants:%=mutant/%/io_suite): %: %.exe
	@printf '#!/bin/sh\nexec sh "%s" ./%s "$$@" --time-limit 40\n' \
	    '$(RW_SRCDIR)/test/io-wine.sh' $< >$@ && chmod +x $@
endif

# The session layer over a simulated kernel with virtual time, and the contract's
# suite over the same: seeds replay exactly.  Calls into the kernel are
# redirected at link time, so what is tested is what is shipped.
sim_wrap := $(addprefix -Wl$(comma)--wrap=,socket close shutdown socketpair dup fcntl bind listen \
	getsockname getpeername connect accept accept4 recv send sendto recvfrom poll setsockopt \
	getsockopt setrlimit getrlimit clock_gettime write malloc calloc realloc free)
sim_c := $(call in_src,test/sim/*.c)
sim_kernel_c := $(addprefix test/sim/,sim.c kernel.c kstream.c kdgram.c posix.c memory.c backend.c \
	backend_try.c backend_relay.c backend_dgram.c)
sim_io_c := $(sim_kernel_c) test/sim/io/choose.c
# Each of these once ended a truncated answer cleanly; so rare that the first thousand have none.
sim_seeds := 1400 11716 14775 19682
sim_faults := LOST_HALF_CLOSE DOUBLE_FREE
# Of the contract's, not those of datagrams: the sessions in the simulation have none.
sim_mutants := $(filter-out LOST_PIECE STALE_PEER,$(mutants))

obj/test/sim/%.o: more = -I$(S)/test/sim -I$(S)/test/io
test/sim_suite: $(call objs,$(sim_c)) libringway.a
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(link) $(sim_wrap) -o $@ $(filter %.o %.a,$^) $(libs)
test/sim_io_suite: $(call objs,$(io_test_c) $(sim_io_c) $(backend_c))
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(link) $(sim_wrap) -Wl,--wrap=io_choose -Wl,--wrap=t_register \
	    -o $@ $(filter %.o,$^) $(libs)
-include $(patsubst %.c,obj/%.d,$(sim_c) $(sim_io_c))

# Deliberate faults must be found by seeds: the contract's, and two of the session layer.
sim_fault_c := $(sim_c) $(daemon_c) $(backend_c)
define sim_fault_rules
simfault/$(1)/obj/%.o: $(S)/%.c config.mk
	@mkdir -p $$(@D)
	$$(call say,CC,"$$*.c ($(1))")$$(compile) -I$$(S)/test/sim -I$$(S)/test/io -O0 -w \
	    -U_FORTIFY_SOURCE $(2) -MMD -MP -c -o $$@ $$<
# The simulated resolver stands in for the real one, so that one comes last and only if it is needed.
simfault/$(1)/lib.a: $(patsubst %.c,simfault/$(1)/obj/%.o,$(daemon_c) $(backend_c))
	$$(call say,AR,$$@)rm -f $$@ && $$(AR) rcs $$@ $$^
simfault/$(1)/sim_suite: $(patsubst %.c,simfault/$(1)/obj/%.o,$(sim_c)) simfault/$(1)/lib.a
	$$(call say,LINK,$$@)$$(link) $$(sim_wrap) -o $$@ $$^ $$(libs)
-include $(patsubst %.c,simfault/$(1)/obj/%.d,$(sim_fault_c))
endef
$(foreach m,$(sim_mutants),$(eval $(call sim_fault_rules,$(m),-DIO_MUTANT=IO_MUTANT_$(m))))
$(foreach m,$(sim_faults),$(eval $(call sim_fault_rules,$(m),-DRW_FAULT=RW_FAULT_$(m))))

.PHONY: check-sim check-sim-io check-sim-faults
check-sim: test/sim_suite
	@./test/sim_suite --seeds $(or $(SIM_SEEDS),2000)
	@for s in $(sim_seeds); do ./test/sim_suite --seed $$s >test/sim_seed.log || \
	    { cat test/sim_seed.log; exit 1; }; tail -n 1 test/sim_seed.log; done
check-sim-io: test/sim_io_suite
	@./test/sim_io_suite -b sim
check-sim-faults: $(foreach m,$(sim_mutants) $(sim_faults),simfault/$(m)/sim_suite)
	@sh $(S)/test/simfaults.sh $(sim_mutants) $(sim_faults)

# -- builds inside the build: other flags, the same sources

asan_args = --enable-sanitize=address,undefined 'CFLAGS=-O1 -g'
tsan_args = --enable-sanitize=thread 'CFLAGS=-O1 -g'

asan/config.mk: config.mk
	@RW_SUBDIR=asan sh ./config.status --quiet $(asan_args) && touch $@
tsan/config.mk: config.mk
	@RW_SUBDIR=tsan sh ./config.status --quiet $(tsan_args) && touch $@
# Compiler and flags of this build are for another system: not taken over.
wine_host = x86_64-w64-mingw32
wine_args = --host=$(wine_host) --with-backends=iocp --disable-sanitize --disable-fuzz \
	CC= AR= PKG_CONFIG= CPPFLAGS= LDFLAGS= LIBS= 'CFLAGS=-O2 -g'
wine/config.mk: config.mk
	@RW_SUBDIR=wine sh ./config.status --quiet $(wine_args) && touch $@
kqueue/config.mk: config.mk
	@RW_SUBDIR=kqueue sh ./config.status --quiet --with-backends=kqueue && touch $@
check-kqueue-e2e: kqueue/config.mk
	+@$(MAKE) --no-print-directory -C kqueue check-e2e
# The first of these that works: libFuzzer, our own driver with the address
# sanitizer, our own driver alone.
fuzzing/config.mk: config.mk
	@try() { RW_SUBDIR=fuzzing sh ./config.status --quiet --enable-fuzz "$$@"; }; \
	{ command -v clang >/dev/null && try CC=clang $(asan_args) 2>/dev/null && \
	    grep -q 'FUZZ_ENGINE = libfuzzer' $@; } || \
	try $(asan_args) || try 'CFLAGS=-O1 -g'
	@touch $@

.PHONY: check-asan check-tsan check-asan-io check-asan-unit check-asan-e2e check-tsan-io check-tsan-e2e
check-asan-io check-asan-unit check-asan-e2e: check-asan-%: asan/config.mk
	+@$(MAKE) --no-print-directory -C asan check-$*
# Criterion's processes do not survive the thread sanitizer: its run is the
# contract's suite and the daemon from outside.
check-tsan-io check-tsan-e2e: check-tsan-%: tsan/config.mk
	+@$(MAKE) --no-print-directory -C tsan check-$*
fuzz-smoke: fuzzing/config.mk
	+@$(MAKE) --no-print-directory -C fuzzing fuzz-run

check-asan: all
	+@$(tally) $(log_dir) "$(MAKE)" check-asan-io check-asan-unit
check-tsan: all
	+@$(tally) $(log_dir) "$(MAKE)" check-tsan-io

ifeq ($(FUZZ_ENGINE),libfuzzer)
fuzz_link = -fsanitize=fuzzer
else
fuzz_driver = obj/fuzz/driver.o
endif
fuzz/%: obj/fuzz/%.o $(fuzz_driver) libringway.a
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(link) $(fuzz_link) -o $@ $^ $(libs)
.SECONDARY: $(call objs,$(fuzz_c) fuzz/driver.c)
-include $(patsubst %.c,obj/%.d,$(fuzz_c) fuzz/driver.c)

fuzz-run: $(fuzz_bins)
	@sh $(S)/fuzz/smoke.sh $(S)/fuzz/corpus $(fuzz_bins)

# -- measurements

micro_c := $(call in_src,bench/micro*.c)
bench/micro: $(call objs,$(micro_c)) libringway.a
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(link) -o $@ $^ $(libs)
-include $(patsubst %.c,obj/%.d,$(micro_c))

# Both ends of the connections through a proxy, and the least that a proxy can
# be; nothing of ringway is in them.
ifeq ($(SYSTEM),linux)
bench_load_c := $(call in_src,bench/load/*.c)
bench_bare_c := $(call in_src,bench/bare.c)
bench/load: $(call objs,$(bench_load_c))
bench/bare: $(call objs,$(bench_bare_c))
bench/load bench/bare:
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(link) -o $@ $^
programs: bench/load bench/bare
-include $(patsubst %.c,obj/%.d,$(bench_load_c) $(bench_bare_c))
endif

bench_knobs := SUITE PEERS ROUNDS DURATION STREAMS CONC CONC_LIST SESSIONS PAYLOADS WORKERS PIN
.PHONY: bench
bench: $(bin) $(if $(micro_c),bench/micro) $(if $(bench_load_c),bench/load bench/bare)
	@$(S)/bench/bench --build . $(foreach k,$(bench_knobs),$(if $($(k)),'$(k)=$($(k))'))

# -- all tests together; the last line is the sum

.PHONY: check check-all
check: all
	+@$(tally) $(log_dir) "$(MAKE)" check-io check-mutants $(if $(filter epoll,$(BACKENDS)),check-kqueue) \
	    check-sim check-sim-io check-sim-faults check-unit fuzz-smoke check-e2e

# What takes too long for every day.
check-all: all
	+@RINGWAY_LONG=1 $(tally) $(log_dir) "$(MAKE)" check-io check-mutants check-kqueue check-sim check-sim-io check-sim-faults check-unit fuzz-smoke \
	    check-e2e check-kqueue-e2e check-asan-io check-asan-unit check-asan-e2e check-tsan-io \
	    check-wine check-wine-mutants

# -- install: the manual pages name the folder that was compiled in

INSTALL ?= install
man_dir = $(mandir)/man$(patsubst .%,%,$(suffix $(1)))
docs = README.md NEWS LICENSE

.PHONY: install uninstall
install: all
	$(INSTALL) -d "$(DESTDIR)$(sbindir)" "$(DESTDIR)$(docdir)"
	$(INSTALL) -m 755 $(bin) "$(DESTDIR)$(sbindir)/$(bin)"
	$(foreach p,$(man_pages),$(INSTALL) -d "$(DESTDIR)$(call man_dir,$(p))" && \
	    sed 's|/etc/ringway|$(sysconfdir)/ringway|g' $(S)/$(p) >obj/page && \
	    $(INSTALL) -m 644 obj/page "$(DESTDIR)$(call man_dir,$(p))/$(notdir $(p))" &&) :
	$(INSTALL) -m 644 $(addprefix $(S)/,$(docs)) "$(DESTDIR)$(docdir)"
	sed 's|/etc/ringway|$(sysconfdir)/ringway|g' $(S)/contrib/ringway-reload >obj/ringway-reload
	$(INSTALL) -m 755 obj/ringway-reload "$(DESTDIR)$(sbindir)/ringway-reload"
	$(INSTALL) -d "$(DESTDIR)$(sysconfdir)/ringway"
	$(INSTALL) -m 644 $(S)/etc/ringway.full.yaml "$(DESTDIR)$(sysconfdir)/ringway"
	@# The administrator's own stays.
	[ -e "$(DESTDIR)$(sysconfdir)/ringway/ringway.yaml" ] || \
	    $(INSTALL) -m 644 $(S)/etc/ringway.yaml "$(DESTDIR)$(sysconfdir)/ringway"

uninstall:
	rm -f "$(DESTDIR)$(sbindir)/ringway-reload" "$(DESTDIR)$(sysconfdir)/ringway/ringway.full.yaml"
	! cmp -s $(S)/etc/ringway.yaml "$(DESTDIR)$(sysconfdir)/ringway/ringway.yaml" || \
	    rm -f "$(DESTDIR)$(sysconfdir)/ringway/ringway.yaml"
	rmdir "$(DESTDIR)$(sysconfdir)/ringway" 2>/dev/null || :
	rm -f "$(DESTDIR)$(sbindir)/$(bin)"
	$(foreach p,$(man_pages),rm -f "$(DESTDIR)$(call man_dir,$(p))/$(notdir $(p))" &&) :
	cd "$(DESTDIR)$(docdir)" 2>/dev/null && rm -f $(docs) || :
	rmdir "$(DESTDIR)$(docdir)" 2>/dev/null || :

# -- the rest

.PHONY: run tidy dist clean distclean help
run: all
	@echo
	@echo "ringway serves SOCKS5 and HTTP on 127.0.0.1:1080; Ctrl-C ends it.  In another terminal:"
	@echo "    curl -x socks5h://127.0.0.1:1080 http://example.com/"
	@echo "    curl -x http://127.0.0.1:1080 http://example.com/"
	@echo "    curl -p -x http://127.0.0.1:1080 https://example.com/"
	@echo "More flags by RUN_ARGS, for example: make run RUN_ARGS='-b epoll -l debug'"
	@echo
	@exec ./$(bin) $(RUN_ARGS)

tidy:
	@sh $(S)/contrib/tidy $(S)

dist:
	@sh $(S)/contrib/dist $(S) ringway-$(VERSION)

clean:
	rm -rf obj test bench mutant simfault asan tsan kqueue wine fuzzing fuzz $(bin) libringway.a ringway-*.tar.gz

distclean: clean
	rm -f config.h config.mk config.log config.status config.stamp srctree Makefile

help:
	@sed -n 's/^#: //p' $(S)/Makefile

endif

#: Goals (in the source folder they build in ./build; BUILD=DIR chooses another):
#:   all            the daemon, ringway (what plain 'make' does)
#:   programs       also the programs of the tests, without running them
#:   run            build, then serve on 127.0.0.1:1080 in the foreground
#:   deps           install what the goals beside it need: make deps run, make deps check
#:   check          every test; the last line says how many passed and failed
#:   check-io       the I/O contract on each backend
#:   check-unit     unit tests
#:   check-e2e      the daemon from outside; PYTEST_ARGS='-k name' chooses
#:   check-mutants  deliberate faults must be caught by the contract's suite
#:   check-kqueue   the kqueue backend over test/shim, its mutants, the BSD branches' syntax
#:   check-sim      the session layer over a simulated kernel (SIM_SEEDS=N); check-sim-io: the contract over it
#:   fuzz-smoke     every fuzz target: its corpus and a bounded, seeded run
#:   check-asan     check-io and check-unit under address and undefined sanitizers
#:   check-tsan     check-io under the thread sanitizer
#:   check-wine     the I/O contract on the Windows backend, cross-built, under wine;
#:                  check-wine-mutants: its deliberate faults
#:   check-all      all of these
#:   bench          ringway and its peers measured, bench/RESULTS.md written (as root; 25 minutes;
#:                  SUITE=relay PEERS=haproxy,nginx ROUNDS=5 and more: bench/bench --help)
#:   tidy           layers, lengths, licence lines, white space
#:   install        to DESTDIR and the folders given to configure; uninstall
#:   dist           a source archive
#:   clean          what was built; distclean: also what configure wrote
#: Variables: V=1 shows commands; CC, CFLAGS, CPPFLAGS, LDFLAGS; DESTDIR.
