#include "lockstep/checkpoint/store/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <stdexcept>

#include "lockstep/checkpoint/store/in_threads.h"
#include "tests/support/scratch_folder.h"
#include "tests/unit/checkpoint/store/a_checkpoint.h"

namespace lockstep::checkpoint {
namespace {

using lockstep::testing::read_file;
using lockstep::testing::ScratchFolder;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAreArray;
using testing::write_step;

const std::vector<std::string> kFiles = {kManifestName, kModelName, kOptimizerName, kStateName};

// What a piece of the manifest says about a place.
const Piece& piece_at(const FileEntry& file, std::uint64_t offset) {
  for (const Piece& piece : file.pieces)
    if (offset < piece.end) return piece;
  throw std::out_of_range("no piece");
}

const FileEntry& entry_of(const Manifest& manifest, const std::string& name) {
  for (const FileEntry& file : manifest.files)
    if (file.name == name) return file;
  throw std::out_of_range(name);
}

// Those of verify(), which are those of verify_pieces().
std::vector<Damage> found_by_both(const std::string& path) {
  std::vector<std::string> whole, pieces;
  const std::vector<Damage> found = verify(path);
  for (const Damage& damage : found) whole.push_back(damage.to_string());
  for (const Damage& damage : verify_pieces(path)) pieces.push_back(damage.to_string());
  EXPECT_THAT(pieces, UnorderedElementsAreArray(whole));
  return found;
}

TEST(Verify, FindsNothingInWhatWasWritten) {
  const ScratchFolder folder;
  EXPECT_THAT(verify(write_step(folder.path(), 12)), IsEmpty());
  EXPECT_THAT(verify(folder.file("last"), /*from_disk=*/true), IsEmpty());
}

TEST(Verify, EveryFlippedBitIsFoundAndItsFileTensorAndOffsetNamed) {
  const ScratchFolder folder;
  const std::string path = write_step(folder.path(), 12);
  const Manifest manifest = read_manifest(path);
  for (const std::string& name : kFiles) {
    const std::string file = "step-00000012/" + name;
    const std::string whole = read_file(folder.file(file));
    for (std::size_t place = 0; place < whole.size(); ++place) {
      for (int bit = 0; bit < 8; ++bit) {
        std::string flipped = whole;
        flipped[place] = char(flipped[place] ^ (1 << bit));
        folder.write(file, flipped);
        const std::vector<Damage> found = found_by_both(path);
        ASSERT_THAT(found, SizeIs(1)) << name << " " << place << " " << bit;
        EXPECT_EQ(found[0].file, path + "/" + name);
        EXPECT_THAT(found[0].to_string(), HasSubstr("offset"));
        if (name == kManifestName) continue;
        EXPECT_EQ(found[0].tensor, piece_at(entry_of(manifest, name), place).name);
        EXPECT_EQ(found[0].offset, piece_at(entry_of(manifest, name), place).begin);
      }
    }
    folder.write(file, whole);
  }
  EXPECT_THAT(found_by_both(path), IsEmpty());
}

TEST(Verify, EveryTruncationIsFoundWithItsPlace) {
  const ScratchFolder folder;
  const std::string path = write_step(folder.path(), 12);
  const Manifest manifest = read_manifest(path);
  for (const std::string& name : kFiles) {
    const std::string file = "step-00000012/" + name;
    const std::string whole = read_file(folder.file(file));
    for (std::size_t length = 0; length < whole.size(); ++length) {
      folder.write(file, whole.substr(0, length));
      const std::vector<Damage> found = found_by_both(path);
      ASSERT_THAT(found, SizeIs(1)) << name << " " << length;
      EXPECT_EQ(found[0].file, path + "/" + name);
      if (name == kManifestName) continue;
      EXPECT_EQ(found[0].offset, length);
      EXPECT_EQ(found[0].tensor, piece_at(entry_of(manifest, name), length).name);
    }
    folder.write(file, whole + "x");
    EXPECT_THAT(found_by_both(path), SizeIs(1)) << name;
    std::filesystem::remove(folder.file(file));
    EXPECT_THAT(found_by_both(path), SizeIs(1)) << name;
    EXPECT_THAT(verify(path)[0].to_string(), HasSubstr(name));
    folder.write(file, whole);
  }
}

TEST(Verify, SaysWhichTensor) {
  const ScratchFolder folder;
  const std::string path = write_step(folder.path(), 12);
  std::string file = read_file(folder.file("step-00000012/model.safetensors"));
  const std::size_t place = file.size() - 1;
  file[place] = char(file[place] ^ 1);
  folder.write("step-00000012/model.safetensors", file);
  EXPECT_EQ(verify(path)[0].to_string(), "'" + path +
                                             "/model.safetensors': tensor 'fc.weight' is not what was written, "
                                             "at offset " +
                                             std::to_string(file.size() - 24));
}

// How many bits are flipped, in how many MB of tensors: LOCKSTEP_FLIPS="10000 300" by hand.
std::pair<int, std::size_t> planned_flips() {
  std::pair<int, std::size_t> planned{200, 2};
  if (const char* wanted = std::getenv("LOCKSTEP_FLIPS")) std::istringstream(wanted) >> planned.first >> planned.second;
  return planned;
}

// Flips a bit of each place, or flips it back.
void flip(const std::string& path, const std::vector<std::pair<std::uint64_t, int>>& places) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  for (const auto& [offset, bit] : places) {
    file.seekg(std::streamoff(offset));
    const char old = char(file.get());
    file.seekp(std::streamoff(offset));
    file.put(char(old ^ (1 << bit)));
  }
  ASSERT_TRUE(file.good()) << path;
}

// One bit in each of some tensors at a time, so that each flip is found for itself.
TEST(Verify, FlippedBitsOfALargeOneAreAllFound) {
  const auto [planned, megabytes] = planned_flips();
  constexpr int kTensors = 64;
  std::mt19937_64 random(7);
  std::vector<float> values(megabytes * 1'000'000 / sizeof(float) / kTensors);
  for (float& value : values) value = float(random() % 1000);
  testing::ACheckpoint one(12);
  one.contents.files[1].tensors.clear();
  for (int i = 0; i < kTensors; ++i)
    one.contents.files[1].tensors.push_back(
        testing::floats("t" + std::to_string(i), {std::int64_t(values.size())}, values));
  const ScratchFolder folder;
  const std::string path = write_checkpoint(folder.path(), one.contents);
  const FileEntry entry = entry_of(read_manifest(path), kOptimizerName);

  for (int flipped = 0; flipped < planned;) {
    std::vector<std::pair<std::uint64_t, int>> places;
    std::vector<std::string> names;
    std::uint64_t begin = 0;
    for (const Piece& piece : entry.pieces) {
      if (!piece.name.empty() && flipped + int(places.size()) < planned && random() % 2 == 0) {
        places.emplace_back(begin + random() % (piece.end - begin), int(random() % 8));
        names.push_back(piece.name);
      }
      begin = piece.end;
    }
    flip(path + "/" + kOptimizerName, places);
    std::vector<std::string> found;
    for (const Damage& damage : found_by_both(path)) found.push_back(damage.tensor);
    ASSERT_THAT(found, UnorderedElementsAreArray(names)) << "behind " << flipped;
    flip(path + "/" + kOptimizerName, places);
    flipped += int(places.size());
  }
  EXPECT_THAT(found_by_both(path), IsEmpty());
}

// Only who wrote the manifest could have done that; its last line fits.
TEST(Verify, AManifestThatContradictsItselfIsFoundByTheHashOfAWholeFile) {
  const ScratchFolder folder;
  const std::string path = write_step(folder.path(), 12);
  Manifest manifest = read_manifest(path);
  manifest.files[0].hash = std::string(32, '0');
  folder.write(std::string("step-00000012/") + kManifestName, format_manifest(manifest));
  ASSERT_THAT(verify(path), SizeIs(1));
  EXPECT_THAT(verify(path)[0].to_string(), HasSubstr("has another hash than its manifest says"));
  EXPECT_THAT(verify_pieces(path), IsEmpty());
}

TEST(InThreads, EachIsCalledOnceAndWhatOneThrowsIsThrown) {
  for (const std::size_t count : {0u, 1u, 2u, 1000u}) {
    std::vector<std::atomic<int>> calls(count);
    in_threads(count, [&](std::size_t i) { ++calls[i]; });
    for (const std::atomic<int>& each : calls) EXPECT_EQ(each, 1);
  }
  EXPECT_THROW(in_threads(1000,
                          [](std::size_t i) {
                            if (i % 7 == 3) throw std::out_of_range("no");
                          }),
               std::out_of_range);
}

TEST(Verify, OfNoCheckpointSaysSo) {
  const ScratchFolder folder;
  ASSERT_THAT(found_by_both(folder.path()), SizeIs(1));
  EXPECT_THAT(verify(folder.path())[0].to_string(), HasSubstr("MANIFEST"));
  EXPECT_THAT(verify(folder.file("nothing"))[0].to_string(), HasSubstr("No such file"));
}

}  // namespace
}  // namespace lockstep::checkpoint
