// What can stand where a file is expected: each reader says so in one line that names the file, and waits for nothing.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <functional>

#include "lockstep/data/codecs/decode.h"
#include "lockstep/data/readers/cifar.h"
#include "lockstep/data/readers/idx.h"
#include "lockstep/data/readers/table_text.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::ScratchFolder;
using testing::usage_error;

struct Fault {
  const char* name;
  std::function<void(const std::string& file)> place;
};

const std::vector<Fault> kFaults = {
    {"missing", [](const std::string&) {}},
    {"empty", [](const std::string& file) { std::ofstream{file}; }},
    {"folder", [](const std::string& file) { fs::create_directory(file); }},
    {"pipe", [](const std::string& file) { ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0); }},
    {"link to nowhere", [](const std::string& file) { fs::create_symlink("nowhere", file); }},
    {"link to itself", [](const std::string& file) { fs::create_symlink(file, file); }},
    {"unreadable", [](const std::string& file) { fs::create_symlink("/proc/self/mem", file); }},  // EIO, also for root
};

// The reader is given the folder, in which the file is at fault.
void expect_faults_named(const std::string& file, const std::function<void(const ScratchFolder&)>& read) {
  for (const Fault& fault : kFaults) {
    SCOPED_TRACE(file + " " + fault.name);
    const ScratchFolder folder;
    fault.place(folder.file(file));
    EXPECT_THAT(usage_error([&] { read(folder); }), HasSubstr(file));
  }
}

TEST(Faults, EveryReaderNamesTheFile) {
  expect_faults_named("test_batch.bin", [](const ScratchFolder& folder) { load_cifar10(folder.path(), Split::test); });
  expect_faults_named("fine_label_names.txt", [](const ScratchFolder& folder) {
    folder.write("test.bin", std::string(3074, '\0'));
    load_cifar100(folder.path(), Split::test);
  });
  expect_faults_named("train-images-idx3-ubyte", [](const ScratchFolder& folder) {
    folder.write("train-labels-idx1-ubyte", "");
    load_mnist(folder.path(), Split::train);
  });
  for (const char* name : {"a.csv", "a.csv.gz"}) {
    expect_faults_named(name, [&](const ScratchFolder& folder) { lay_out_table(*open_bytes(folder.file(name)), {}); });
  }
  expect_faults_named("a.jpg", [](const ScratchFolder& folder) { read_image(folder.file("a.jpg")); });
}

}  // namespace
}  // namespace lockstep::data
