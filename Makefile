# The front door. `make help` lists what there is; everything else is CMake with presets.
#
# scripts/bootstrap runs first each time: silent and offline when nothing is missing.

PREFIX ?= /usr/local
# As many as there are cores, and memory for.
JOBS ?= $(shell scripts/jobs)

BUILD = cmake --build --preset
# Those that start processes hold a lock, so that one of two is none of them (RESOURCE_LOCK cores).
CTEST = ctest --output-on-failure --no-tests=error --output-junit tests.xml --parallel 2

# Each header and source by itself.
alone = ^install\.(headers|sources)_
# What the sanitizers run (without OpenMP, whose threads ThreadSanitizer cannot follow inside libtorch): the seams
# and whatever parses or moves bytes under AddressSanitizer, ranks and loaders that are threads under ThreadSanitizer,
# which sees one process only: worlds of processes cost it minutes of forking and show nothing.
empty =
space = $(empty) $(empty)
asan_labels = contract bytes
tsan_labels = contract threads
# What they leave out, for it costs minutes there and reads no byte and has no thread that other cases have not: worlds
# of more than three processes, each a fork of all that AddressSanitizer keeps; worlds of a size or shape between two
# that are run; counts of launches and ranks, saves killed at each system call, recipes, and trainers on several nodes;
# and programs without descriptors, which a sanitizer needs. One case ends by exit(), when LeakSanitizer finds a pool of
# libtorch's. ThreadSanitizer does not see how libtorch's Gloo guards what its threads share.
asan_skip = */processes4* */processes5* */processes6* */processes7* */processes8* */threads7* */threads8* */nodes4* \
  */nodes5* */nodes_2_2* */nodes_3_1* */nodes_3_5* */hierarchical_1* */hierarchical_2_2* */hierarchical_3* \
  Fault.AThousandLaunches* Ranks.AsManyAs* WriteDisturbed.* \
  TrainRecipes.* *OurTrainer* *NoFileDescriptorsAreLeft* Session.EndsWithTheProgram
tsan_skip = */processes* */nodes* */hierarchical* */gloo* */c10d* GlooStreams.* */threads7* \
  Fault.AThousandLaunches* Ranks.AsManyAs* Member.AsManyRanks* CachingAllocatorAtStart.* *NoFileDescriptorsAreLeft*

# The folder of MNIST's files, for parity-long.
MNIST ?= ../shared/data/mnist
# What recipe-parity trains, with which seeds (3: the first three; 3-5: these), and the folder of the real sets.
RECIPES ?= finetune-paired finetune cifar
SEEDS ?= 3
DATA ?= ../shared/data
# What fused-accuracy trains.
CASES ?= mnist cifar

.PHONY: all demo docs test alone python wheel tidy bench bench-programs parity-long recipe-parity fused-accuracy sanitize asan tsan fuzz clang mutants lint format install clean help FORCE
.DEFAULT_GOAL = all

all: build/build.ninja
	$(BUILD) default -j $(JOBS)

demo: build/build.ninja
	@$(BUILD) default -j $(JOBS) --target lockstep lockstep-trainer
	scripts/demo

# Configured again: what bootstrap has installed is there now.
test: all
	@scripts/bootstrap --tests
	@cmake --preset default --log-level=WARNING >/dev/null
	$(BUILD) default -j $(JOBS) --target tests_python
	LOCKSTEP_REQUIRE_LAUNCHERS=1 $(CTEST) --exclude-regex '$(alone)' --test-dir build

# Each header and source of the library by itself: eight minutes that most changes do not need, so `make test` leaves them
# out. What is installed must be built.
alone: all
	@scripts/bootstrap --tests --fuzz
	@cmake --preset default --log-level=WARNING >/dev/null
	ctest --output-on-failure --no-tests=error --test-dir build --tests-regex '$(alone)'

# The Python package lockstep_torch.
python: build/build.ninja
	@scripts/bootstrap --tests
	@cmake --preset default --log-level=WARNING >/dev/null
	$(BUILD) default -j $(JOBS) --target python

# The same as a file for pip.
wheel: python
	$(BUILD) default -j $(JOBS) --target wheel

bench: build/build.ninja
	@scripts/bootstrap --tests --bench
	scripts/bench $(ONLY)

# What scripts/bench measures, by the presets as they are now. tests_python is lockstep_torch, or a word why it cannot be
# built.
bench-programs: build/build.ninja
	@cmake --preset default --log-level=WARNING >/dev/null
	@$(BUILD) default -j $(JOBS) --target lockstep lockstep-trainer lockstep-benchmarks tests_python

parity-long: all
	@scripts/bootstrap --tests
	commit=$$(python3 -B benchmarks/support/measured_code.py mnist-parity) && \
	LOCKSTEP_BIN=build/bin scripts/python-torch tests/parity/mnist_ten_epochs.py --data-path $(MNIST) \
	  --commit "$$commit" --report benchmarks/reports/mnist-parity.md

recipe-parity: all
	@scripts/bootstrap --tests
	commit=$$(python3 -B benchmarks/support/measured_code.py recipe-parity) && \
	LOCKSTEP_BIN=build/bin scripts/python-torch tests/parity/recipes_by_hand.py $(RECIPES) --data $(DATA) \
	  --seeds $(SEEDS) --rows build/recipe-parity.jsonl --commit "$$commit" --report benchmarks/reports/recipe-parity.md

fused-accuracy: all
	commit=$$(python3 -B benchmarks/support/measured_code.py fused-accuracy) && \
	python3 -B tests/parity/fused_accuracy.py $(CASES) --data $(DATA) \
	  --commit "$$commit" --report benchmarks/reports/fused-accuracy.md

sanitize: asan tsan

asan tsan: %: build-%/build.ninja
	$(BUILD) $@ -j $(JOBS) --target $(addprefix tests_,$($@_labels))
	$(if $(filter tsan,$@),OMP_NUM_THREADS=1) GTEST_FILTER='-$(subst $(space),:,$(strip $($@_skip)))' \
	  $(CTEST) --test-dir build-$@ --label-regex '$(subst $(space),|,$($@_labels))'

# Each libFuzzer program for half a minute, those of weights of others and state.json for a whole one; two at a time.
fuzz: build-fuzz/build.ninja
	$(BUILD) fuzz -j $(JOBS) --target tests_fuzz
	$(CTEST) --test-dir build-fuzz --label-regex fuzz

clang:
	@scripts/bootstrap --fuzz

build-asan/build.ninja build-tsan/build.ninja build-fuzz/build.ninja: | clang

# About 350 files, forty minutes on two cores: ONLY=lockstep/launch looks at a part.
tidy: | build-tidy/build.ninja
	@scripts/bootstrap --tidy
	@$(BUILD) tidy --target lockstep_commit
	run-clang-tidy -quiet -p build-tidy -j $(JOBS) '^$(CURDIR)/$(or $(ONLY),(lockstep|apps|examples|tests|benchmarks))/'

# Seeds the faults of tests/mutants/ one at a time; hours. ONLY="memory launch" seeds those of some modules, SAMPLE=120 so
# many of all modules, which SEED=1 draws anew.
mutants: .deps/libtorch | clang
	JOBS=$(JOBS) scripts/mutants $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED)) $(ONLY)

lint:
	@scripts/bootstrap --lint
	scripts/check_includes
	scripts/check_tree
	scripts/check_size
	scripts/check_spelling
	scripts/check_format

docs:
	@scripts/bootstrap --docs
	scripts/docs

format:
	@scripts/bootstrap --lint
	scripts/check_format --write

install: all
	cmake --install build --prefix $(PREFIX)

# The folders of the presets, and of these what CMake made from this tree: a CMakeCache.txt says so.
clean:
	@for folder in build build-dev build-release build-asan build-tsan build-tidy build-fuzz; do \
	  [ -e $$folder ] || continue; \
	  if [ "$$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' $$folder/CMakeCache.txt 2>/dev/null)" -ef . ]; then rm -rf $$folder; \
	  else echo "make clean: $$folder stays, it is no build folder of this tree" >&2; fi; \
	done
	@[ ! -e build-mutants/tree/scripts/mutants ] || rm -rf build-mutants

help:
	@echo 'make            build everything into build/, programs into build/bin/'
	@echo 'make demo       build, train a ConvNet on two processes, then again with a worker killed: the same weights'
	@echo 'make test       build, then run every test'
	@echo 'make alone      compile each header and source of the library by itself, as a parent project without unity builds does'
	@echo 'make python     build the Python package lockstep_torch into build/python/'
	@echo 'make wheel      the same as a file for pip, which brings `lockstep run` along, into build/wheel/'
	@echo 'make bench      build, then measure beside PyTorch, Gloo, Open MPI, torchrun, torchvision; writes benchmarks/reports/'
	@echo '                (ONLY=step, nets, job, reduce-update, rules, comm, constants, launch, nodes, link, python, feed, input or gpu: one of them)'
	@echo 'make parity-long  compare ten epochs of MNIST (MNIST=folder) with Python, about ten minutes'
	@echo 'make recipe-parity  compare two recipes with Python scripts (DATA=folder), three seeds each, two hours; SEEDS=3-5 adds to them'
	@echo 'make fused-accuracy  compare accuracies with --fuse and without (CASES=mnist: a minute; cifar: hours), three seeds each'
	@echo 'make sanitize   run the tests of seams, threads and readers under the sanitizers (asan, tsan)'
	@echo 'make fuzz       run each libFuzzer program for half a minute or a whole one'
	@echo 'make lint       check format, spelling, includes and forbidden things; make format repairs the format'
	@echo 'make tidy       look for mistakes with clang-tidy (ONLY=lockstep/launch: in one folder); takes an hour of CPU'
	@echo 'make mutants    seed faults one at a time and list those that no test catches (ONLY=memory: of one module; SAMPLE=120: so many); hours'
	@echo 'make docs       build the pages, with a reference of the headers, as a site into build/docs/site'
	@echo 'make install    install into PREFIX ($(PREFIX)); DESTDIR is honoured'
	@echo 'make clean      remove the build folders; .deps/ stays'

# Bootstrap touches .deps/libtorch only when it found another libtorch.
.deps/libtorch: FORCE
	@scripts/bootstrap

# All build folders take the libtorch that bootstrap found.
build/build.ninja: .deps/libtorch CMakePresets.json
	LOCKSTEP_TORCH=$$(cat .deps/libtorch) cmake --preset default
	@touch $@

build-%/build.ninja: .deps/libtorch CMakePresets.json
	LOCKSTEP_TORCH=$$(cat .deps/libtorch) cmake --preset $*
	@touch $@
