#include "lockstep/data/fetch/fetch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/data/fetch/sha256.h"
#include "tests/support/file_server.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/tar_file.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::read_file;
using testing::usage_error;

std::string sum_of(const std::string& content) {
  Sha256 sum;
  sum.add(content.data(), content.size());
  return sum.digits();
}

std::string noise(std::size_t bytes) {
  std::string text(bytes, '\0');
  std::uint32_t state = 1;
  for (char& byte : text) byte = char((state = state * 1664525 + 1013904223) >> 24);
  return text;
}

class Fetch : public ::testing::Test {
 protected:
  RemoteFile serve(const std::string& name, const std::string& content) {
    served_.write(name, content);
    return {name, content.size(), sum_of(content)};
  }

  Recipe recipe(std::vector<RemoteFile> files, const std::vector<std::string>& hows = {"plain"}) const {
    Recipe made{.name = "toy", .files = std::move(files)};
    for (const std::string& how : hows) made.mirrors.push_back(server_.url(how));
    return made;
  }

  bool fetch_to(const Recipe& recipe) const {
    DownloadProgress quiet(-1);
    return fetch(recipe, folder_.path(), {.stall = std::chrono::seconds(1)}, quiet);
  }

  std::string failure(const Recipe& recipe) const {
    try {
      fetch_to(recipe);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const UsageError& error) {
      ADD_FAILURE() << "a UsageError: " << error.what();
    } catch (const Error& error) {
      std::string message = error.what();
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
      return message;
    }
    return "";
  }

  std::string got(const std::string& name) const { return read_file(folder_.file(name)); }
  bool exists(const std::string& name) const { return fs::exists(folder_.file(name)); }

  const std::string content_ = noise(300'000);
  testing::ScratchFolder served_;
  testing::ScratchFolder folder_;
  testing::FileServer server_{served_.path()};
};

TEST_F(Fetch, BringsEveryFileAndKnowsThemLater) {
  const Recipe both = recipe({serve("a.gz", content_), serve("b.gz", "short")});
  EXPECT_TRUE(fetch_to(both));
  EXPECT_EQ(got("a.gz"), content_);
  EXPECT_EQ(got("b.gz"), "short");
  EXPECT_EQ(folder_.entries(), 2u);
  EXPECT_FALSE(fetch_to(both));
  EXPECT_THAT(server_.requests(), ElementsAre("plain a.gz -", "plain b.gz -"));
}

TEST_F(Fetch, GoesOnWhereTheConnectionWasDropped) {
  EXPECT_TRUE(fetch_to(recipe({serve("a.gz", content_)}, {"drop"})));
  EXPECT_EQ(got("a.gz"), content_);
  EXPECT_THAT(server_.requests(), ElementsAre("drop a.gz -", "drop a.gz 150000-"));
}

TEST_F(Fetch, KeepsWhatCameForTheNextCall) {
  const RemoteFile file = serve("a.gz", content_);
  EXPECT_THAT(failure(recipe({file}, {"halve"})), HasSubstr("bytes are kept in '" + folder_.file("a.gz.part") + "'"));
  EXPECT_EQ(server_.requests().size(), 5u);
  const std::size_t kept = fs::file_size(folder_.file("a.gz.part"));
  EXPECT_GT(kept, content_.size() * 9 / 10);
  EXPECT_FALSE(exists("a.gz"));
  EXPECT_TRUE(fetch_to(recipe({file})));
  EXPECT_EQ(got("a.gz"), content_);
  EXPECT_EQ(server_.requests().back(), "plain a.gz " + std::to_string(kept) + "-");
  EXPECT_EQ(folder_.entries(), 1u);
}

TEST_F(Fetch, BeginsAnewWhenTheServerKnowsNoRanges) {
  folder_.write("a.gz.part", content_.substr(0, 1000));
  EXPECT_TRUE(fetch_to(recipe({serve("a.gz", content_)}, {"no-range"})));
  EXPECT_EQ(got("a.gz"), content_);
}

TEST_F(Fetch, KeepsThePartWhenAnythingElseIsAnswered) {
  const std::string kept = content_.substr(0, 1000);
  folder_.write("a.gz.part", kept);
  const RemoteFile file = serve("a.gz", content_);
  EXPECT_THAT(
      failure(recipe({file}, {"page", "chunked"})),
      AllOf(HasSubstr("asked for bytes from 1000 on, answers with HTTP 200 and 26 bytes, not with all 300000"),
            HasSubstr("answers with HTTP 200 and a body of unknown length"),
            EndsWith("1000 bytes are kept in '" + folder_.file("a.gz.part") + "', the next fetch goes on from there")));
  EXPECT_EQ(got("a.gz.part"), kept);
  EXPECT_TRUE(fetch_to(recipe({file}, {"page", "plain"})));
  EXPECT_EQ(got("a.gz"), content_);
  EXPECT_EQ(server_.requests().back(), "plain a.gz 1000-");
}

TEST_F(Fetch, NamesFoldersOnOneLine) {
  const std::string odd = folder_.write("a\nb\x1b[2J", "") + "/below";
  DownloadProgress quiet(-1);
  EXPECT_THAT(usage_error([&] { fetch(recipe({}), odd, {}, quiet); }), HasSubstr("/a\\nb\\x1b[2J/below': "));
}

TEST_F(Fetch, BeginsAnewWhenTheKeptPartIsOfSomethingElse) {
  folder_.write("a.gz.part", std::string(1000, 'x'));
  EXPECT_TRUE(fetch_to(recipe({serve("a.gz", content_)})));
  EXPECT_EQ(got("a.gz"), content_);
  EXPECT_THAT(server_.requests(), ElementsAre("plain a.gz 1000-", "plain a.gz -"));
}

TEST_F(Fetch, BeginsAnewWhenTheAnswerIsNotTheRestThatWasAskedFor) {
  folder_.write("a.gz.part", content_.substr(0, 1000));
  EXPECT_TRUE(fetch_to(recipe({serve("a.gz", content_)}, {"shifted"})));
  EXPECT_EQ(got("a.gz"), content_);
}

TEST_F(Fetch, TakesAPartThatIsWholeAlready) {
  folder_.write("a.gz.part", content_);
  EXPECT_TRUE(fetch_to(recipe({serve("a.gz", content_)})));
  EXPECT_THAT(server_.requests(), ElementsAre());
  EXPECT_EQ(got("a.gz"), content_);
}

TEST_F(Fetch, BeginsAnewWhenThePartIsTooLong) {
  folder_.write("a.gz.part", content_ + "more");
  EXPECT_TRUE(fetch_to(recipe({serve("a.gz", content_)})));
  EXPECT_EQ(got("a.gz"), content_);
}

TEST_F(Fetch, RefusesOtherContentWithBothSums) {
  RemoteFile file = serve("a.gz", content_);
  const std::string real = file.sha256;
  file.sha256 = std::string(64, '0');
  EXPECT_THAT(failure(recipe({file})), HasSubstr("a.gz: SHA-256 " + real + ", " + file.sha256 + " expected"));
  EXPECT_EQ(folder_.entries(), 0u);
}

TEST_F(Fetch, RefusesAnotherLength) {
  const RemoteFile file = serve("a.gz", content_);
  EXPECT_THAT(failure(recipe({file}, {"longer"})), HasSubstr("sends more than the 300000 bytes expected"));
  served_.write("a.gz", "short");
  EXPECT_THAT(failure(recipe({file})), EndsWith("has 5 bytes, 300000 expected"));
  EXPECT_EQ(folder_.entries(), 0u);
}

TEST_F(Fetch, AsksTheNextMirrorWhenOneHasNoSuchFile) {
  const RemoteFile file = serve("there/a.gz", content_);
  Recipe two = recipe({{"a.gz", file.bytes, file.sha256}});
  two.mirrors = {server_.url() + "nowhere/", server_.url() + "there/"};
  EXPECT_TRUE(fetch_to(two));
  EXPECT_EQ(got("a.gz"), content_);
  EXPECT_THAT(server_.requests(), ElementsAre("plain nowhere/a.gz -", "plain there/a.gz -"));
}

TEST_F(Fetch, SaysWhyEachMirrorFailed) {
  const Recipe none = recipe({{"a.gz", 10, std::string(64, '0')}}, {"plain", "no-range"});
  EXPECT_EQ(failure(none),
            "cannot download " + server_.url() + "a.gz: HTTP 404; " + server_.url("no-range") + "a.gz: HTTP 404");
  EXPECT_EQ(folder_.entries(), 0u);
}

TEST_F(Fetch, GivesUpAServerThatStalls) {
  const RemoteFile file = serve("a.gz", content_);
  EXPECT_THAT(failure(recipe({file}, {"silent"})), HasSubstr("no answer, or nearly none, for 1 s"));
  EXPECT_EQ(folder_.entries(), 0u);
  EXPECT_TRUE(fetch_to(recipe({file}, {"stall"})));
  EXPECT_EQ(got("a.gz"), content_);
}

TEST_F(Fetch, FollowsFewRedirections) {
  const RemoteFile file = serve("a.gz", content_);
  EXPECT_THAT(failure(recipe({file}, {"circle"})), HasSubstr("Maximum (5) redirects followed"));
  EXPECT_TRUE(fetch_to(recipe({file}, {"redirect"})));
  EXPECT_EQ(got("a.gz"), content_);
}

TEST_F(Fetch, LeavesAFileOfThatNameAlone) {
  const RemoteFile file = serve("a.gz", content_);
  folder_.write("a.gz", "precious");
  EXPECT_THAT(usage_error([&] { fetch_to(recipe({file})); }),
              AllOf(HasSubstr("'" + folder_.file("a.gz") + "' is there but is not what toy needs: SHA-256 "),
                    EndsWith(": move it away or choose another folder")));
  EXPECT_EQ(got("a.gz"), "precious");
  EXPECT_EQ(folder_.entries(), 1u);
}

TEST_F(Fetch, NeedsAFolderThatCanBeWritten) {
  const RemoteFile file = serve("a.gz", content_);
  DownloadProgress quiet(-1);
  const std::string in_a_file = folder_.write("file", "") + "/below";
  EXPECT_THAT(usage_error([&] { fetch(recipe({file}), in_a_file, {}, quiet); }), HasSubstr("cannot make the folder '"));
  fs::create_directories(folder_.file("a.gz.part"));
  EXPECT_THAT(usage_error([&] { fetch_to(recipe({file})); }), HasSubstr("cannot write '" + folder_.file("a.gz.part")));
}

TEST_F(Fetch, SeveralAtOnceBringEachFileOnce) {
  const Recipe both = recipe({serve("a.gz", content_), serve("b.gz", noise(100'000))}, {"slow"});
  {
    std::vector<std::jthread> fetches;
    for (int i = 0; i < 3; ++i) fetches.emplace_back([&] { EXPECT_NO_THROW(fetch_to(both)); });
  }
  EXPECT_EQ(got("a.gz"), content_);
  EXPECT_EQ(folder_.entries(), 2u);
  EXPECT_THAT(server_.requests(), ElementsAre("slow a.gz -", "slow b.gz -"));
}

class FetchArchive : public Fetch {
 protected:
  Recipe archive(const std::vector<testing::TarEntry>& entries) {
    Recipe made = recipe({serve("set.tar.gz", testing::tar_gz(entries))});
    made.unpacks_to = "set";
    return made;
  }
};

TEST_F(FetchArchive, IsUnpackedAndKnownLater) {
  const Recipe set = archive({{.name = "set", .folder = true}, {"set/train.bin", content_}, {"set/names.txt", "a\n"}});
  folder_.write("set.part/left.bin", "by a fetch that was killed");
  EXPECT_TRUE(fetch_to(set));
  EXPECT_EQ(got("set/train.bin"), content_);
  EXPECT_EQ(got("set/names.txt"), "a\n");
  EXPECT_EQ(got("set/SHA256SUMS"), sum_of(content_) + "  train.bin\n" + sum_of("a\n") + "  names.txt\n");
  EXPECT_FALSE(exists("set/left.bin"));
  EXPECT_EQ(folder_.entries(), 1u);
  EXPECT_FALSE(fetch_to(set));
  EXPECT_EQ(server_.requests().size(), 1u);
}

TEST_F(FetchArchive, ThatWasDamagedLaterIsNamed) {
  const Recipe set = archive({{"set/train.bin", "pixels"}});
  EXPECT_TRUE(fetch_to(set));
  folder_.write("set/train.bin", "pixelz");
  EXPECT_THAT(usage_error([&] { fetch_to(set); }),
              AllOf(HasSubstr("'" + folder_.file("set") + "' is there but is not what toy needs: 'train.bin' has "),
                    HasSubstr(sum_of("pixelz"))));
  fs::remove(folder_.file("set/train.bin"));
  EXPECT_THAT(usage_error([&] { fetch_to(set); }), HasSubstr("'train.bin' is missing"));
}

TEST_F(FetchArchive, ThatIsHostileLeavesNothing) {
  const Recipe set = archive({{"set/good.bin", "1"}, {"set/../../evil", "2"}});
  EXPECT_THAT(usage_error([&] { fetch_to(set); }), HasSubstr("entry 'set/../../evil': '..' in its name"));
  EXPECT_FALSE(exists("set"));
  EXPECT_FALSE(exists("set.part"));
}

}  // namespace
}  // namespace lockstep::data
