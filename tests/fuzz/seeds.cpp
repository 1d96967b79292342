// fuzz_seeds FOLDER: writes what the fuzzers begin with, a folder for each of them.

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

#include "lockstep/checkpoint/store/manifest.h"
#include "lockstep/checkpoint/store/state_json.h"
#include "lockstep/comm/network/words.h"
#include "lockstep/rendezvous/messages.h"
#include "lockstep/rendezvous/store.h"
#include "lockstep/trace/rank_trace.h"
#include "tests/support/gzip.h"
#include "tests/support/image_files.h"
#include "tests/support/pt_files.h"

namespace {

using namespace lockstep::testing;

class Seeds {
 public:
  explicit Seeds(const std::filesystem::path& folder) : folder_(folder) {
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
  }
  void add(const Bytes& bytes) {
    std::ofstream file(folder_ / std::to_string(count_++), std::ios::binary);
    file.exceptions(std::ios::badbit | std::ios::failbit);
    file.write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
  }

 private:
  std::filesystem::path folder_;
  int count_ = 0;
};

// A picture behind the bytes that draw a part of it.
void add_picture(Seeds& seeds, Bytes file) {
  file.insert(file.begin(), {0x60, 0x80, 0x40, 0xa0});
  seeds.add(file);
}

void add_jpegs(Seeds& seeds) {
  for (const bool progressive : {false, true}) {
    for (const int channels : {1, 3, 4}) {
      add_picture(seeds, jpeg_file(picture(20, 17, channels), {.progressive = progressive, .cmyk = channels == 4}));
    }
    add_picture(seeds, jpeg_file(picture(33, 9), {.quality = 30, .progressive = progressive, .subsampled = false}));
    add_picture(seeds, jpeg_file(picture(24, 24), {.progressive = progressive, .restart_rows = 1}));
  }
  // Large enough for something to be left out.
  for (const auto& [across, down] : {std::pair(1, 1), std::pair(2, 1), std::pair(1, 2), std::pair(2, 2)}) {
    add_picture(seeds, jpeg_file(picture(90, 100), {.quality = 20, .across = across, .down = down}));
  }
  add_picture(seeds, jpeg_file(picture(99, 70), {.quality = 20, .restart_rows = 1}));
  add_picture(seeds, jpeg_file(picture(80, 110, 1), {.quality = 20}));
  for (const auto& [how, file] : untidy_jpegs(jpeg_file(picture(66, 65), {.quality = 20}))) add_picture(seeds, file);
}

void add_pngs(Seeds& seeds) {
  for (const bool interlaced : {false, true}) add_picture(seeds, png_file(picture(20, 17), interlaced));
  const Bytes palette = png_chunk("PLTE", {9, 8, 7, 50, 60, 70});
  for (const std::uint8_t depth : {1, 2, 4, 8, 16}) {
    const Bytes row(16, 0x5a);
    const std::uint32_t width = 8;
    const auto cut = [&](int samples) { return Bytes(row.begin(), row.begin() + (width * samples * depth + 7) / 8); };
    add_picture(seeds, png_file({width, 1, depth, 0}, {cut(1)}));
    if (depth <= 8) add_picture(seeds, png_file({width, 1, depth, 3}, {cut(1)}, palette));
  }
  for (const std::uint8_t depth : {8, 16}) {
    for (const auto& [color, samples] : {std::pair(2, 3), std::pair(4, 2), std::pair(6, 4)}) {
      const Bytes row(std::size_t(2 * samples * depth / 8), 0x33);
      add_picture(seeds, png_file({2, 2, depth, std::uint8_t(color)}, {row, row}));
    }
  }
}

Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

Bytes idx_file(const Bytes& sizes, std::size_t bytes) {
  Bytes file = {0, 0, 8, std::uint8_t(sizes.size())};
  for (const std::uint8_t size : sizes) file.insert(file.end(), {0, 0, 0, size});
  file.resize(file.size() + bytes, 0x5a);
  return file;
}

// Each as it is and as gzip, with the byte before it that tells the fuzzer.
void add_idx(Seeds& seeds) {
  for (const Bytes& sizes : {Bytes{5}, Bytes{2, 3}, Bytes{4, 28, 28}, Bytes{2, 1, 2, 2}, Bytes{0, 3}}) {
    std::size_t count = 1;
    for (const std::uint8_t size : sizes) count *= size;
    const Bytes plain = idx_file(sizes, count);
    const std::string packed = gzip({plain.begin(), plain.end()});
    const auto choice = std::uint8_t((sizes.size() - 1) << 1);
    for (Bytes seed : {plain, bytes_of(packed)}) {
      seed.insert(seed.begin(), seed == plain ? choice : choice | 1);
      seeds.add(seed);
    }
  }
}

void add_tables(Seeds& seeds) {
  for (const char* text : {"a,b,c\n1,2,3\n4,5,6\n", "1,2\r\n3,4", "\xef\xbb\xbfx,y\n0.5,-1e-3\n\nnan,inf\n+7., .5\n",
                           "\"a\",\"b \"\"c\"\"\"\n\"1\",\"2\"\n", "\"two\nlines\",\"d,e\"\r\n1,2\r\n",
                           "1\n2\n3\n4\n5\n6\n7\n", "123456789012345678,9223372036854775807\n-1,1e400\n"}) {
    for (const auto& [choice, delimiter] : {std::pair(0x00, ','), std::pair(0x15, ';'), std::pair(0x2a, '\t')}) {
      std::string seed = char(choice) + std::string(text);
      std::ranges::replace(seed, ',', delimiter);
      seeds.add(bytes_of(seed));
    }
  }
}

void add_safetensors(Seeds& seeds) {
  const std::string entry = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  for (const auto& [header, data] :
       {std::pair(std::string("{}"), 0), std::pair(R"({"w":)" + entry + "}  ", 4),
        std::pair(R"({"__metadata__":{"format":"pt"},"w":)" + entry +
                      R"(,"b":{"dtype":"BOOL","shape":[2,1],"data_offsets":[4,6]}})",
                  6),
        std::pair(std::string(R"({"e":{"dtype":"BF16","shape":[0,3],"data_offsets":[0,0]},)"
                              R"("s":{"dtype":"I64","shape":[],"data_offsets":[0,8]}})"),
                  8),
        // Deeper than the format, where the reader looks for a dtype, a tensor.
        std::pair(R"({"w":{"dtype":)" + std::string(900, '[') + std::string(900, ']') +
                      R"(,"shape":[1],"data_offsets":[0,4]}})",
                  4),
        std::pair(R"({"w":)" + std::string(900, '[') + std::string(900, ']') + "}", 0)}) {
    Bytes file(8);
    const std::uint64_t length = header.size();
    std::memcpy(file.data(), &length, sizeof length);
    file.insert(file.end(), header.begin(), header.end());
    file.resize(file.size() + std::size_t(data), 7);
    seeds.add(file);
  }
}

// Both formats, with what a checkpoint has beside the weights.
void add_pts(Seeds& seeds) {
  const std::string six = pt::storage("FloatStorage", "0", 6, "cuda:0");
  const pt::Entries weights = {{"module.w", pt::tensor(six, {2, 3}, {3, 1})},
                               {"module.t", pt::tensor(six, {3, 2}, {1, 3})},
                               {"module.n", pt::tensor(pt::storage("LongStorage", "1", 1), {}, {})}};
  const std::string parameter =
      pt::global("torch._utils", "_rebuild_parameter") +
      pt::tuple(weights[0].second + "\x88" + pt::global("collections", "OrderedDict") + ")R") + "R";
  const std::string bytes = pt::tuple(pt::text("storage") + pt::global("torch.storage", "UntypedStorage") +
                                      pt::text("0") + pt::text("cpu") + pt::integer(24)) +
                            "Q";
  const std::string words = pt::global("torch._utils", "_rebuild_tensor_v3") +
                            pt::tuple(bytes + pt::integer(2) + pt::integers({2}) + pt::integers({1}) + "\x89}" +
                                      pt::global("torch", "uint16")) +
                            "R";
  const std::string part = pt::tensor(
      pt::storage("FloatStorage", "0", 6, "cpu", pt::tuple(pt::text("v") + pt::integer(2) + pt::integer(3))), {2}, {1});
  const std::string numbers(24, 1), count(8, 2);
  for (const std::string& value :
       {pt::ordered(weights), pt::dictionary({{"model", pt::ordered(weights)}, {"args", pt::name_space()}}),
        pt::dictionary({{"p", parameter}, {"part", part}}), pt::dictionary({{"u", words}})}) {
    seeds.add(bytes_of(pt::old_file(
        value, {{"0", {value.find("Untyped") == std::string::npos ? 6 : 24, numbers}}, {"1", {1, count}}})));
    for (const std::uint64_t wide_from : {0xffffffffU, 0U})
      seeds.add(bytes_of(
          pt::archive(value, {{"byteorder", wide_from == 0 ? "big" : "little"}, {"data/0", numbers}, {"data/1", count}},
                      wide_from)));
  }
}

// With the byte that has the lines' hash made, or leaves it.
void add_manifests(Seeds& seeds) {
  namespace checkpoint = lockstep::checkpoint;
  const std::string hash(32, 'a');
  const std::string text = checkpoint::format_manifest(
      {.step = 12,
       .weights = hash,
       .files = {{"model.safetensors", 20, hash, {{"", 0, 8, hash}, {"fc.weight", 8, 20, hash}}},
                 {"state.json", 0, hash, {}}}});
  seeds.add(bytes_of(std::string(1, '\0') + text));
  seeds.add(bytes_of("\x01" + text.substr(0, text.rfind("end "))));
}

void add_states(Seeds& seeds) {
  lockstep::checkpoint::SavedState state;
  seeds.add(bytes_of(lockstep::checkpoint::format_state(state)));
  state.updates = {{"fc.weight", 3}};
  state.kept = {{"loader", "abc"}};
  state.versions = {{"lockstep", "0.1.0"}};
  state.metric = 0.5;
  state.extra = R"({"mine":[1,2.5,null,"x"]})";
  seeds.add(bytes_of(lockstep::checkpoint::format_state(state)));
}

// With the byte that says who sends them.
void add_messages(Seeds& seeds) {
  using namespace lockstep::rendezvous;
  const Message all[] = {Join{.version = "0.1.0", .nnodes = "2:4", .backend = "c10d", .host = "h"},
                         Ready{},
                         Ping{.sent = 1},
                         Pong{.sent = 1, .wall = 2.5},
                         Failed{.generation = 1, .text = "why"},
                         Stopping{.signal = 15},
                         Done{.code = 1, .joined = true},
                         Waiting{"for h2"},
                         Refused{"no"},
                         Start{.nodes = 3, .master_addr = "h", .run_id = "job", .heirs = {"10.0.0.2:4000", ""}},
                         EndNow{1},
                         Outcome{.again = true, .text = "why"},
                         StoreAsk{.id = 1, .keys = {"a", "b"}, .values = {"1", ""}},
                         StoreForget{.id = 1},
                         StoreAnswer{.id = 1, .values = {"x"}, .why = "full"},
                         Report{.part = {"{}"}, .last = true},
                         GivesUp{"2 of the 3 nodes"},
                         MakeRoom{1},
                         NotInSteps{1}};
  std::string together;
  for (const Message& message : all) {
    seeds.add(bytes_of(std::string(1, '\0') + to_frame(message)));
    together += to_frame(message);
  }
  seeds.add(bytes_of(std::string(1, '\0') + together));
  const Message large = StoreAsk{.id = 2, .keys = {"a"}, .values = {std::string(kLongestValue, 'v')}};
  seeds.add(bytes_of("\x01" + to_frame(large) + together));
}

void add_node_lists(Seeds& seeds) {
  for (const std::string text :
       {"n1", "a[01-03,7],b-[1-2]c[4,5]", "r[1]n[8-11]-ib.x,y_1", "a[0-4000000000]", "a[1[2]]"})
    seeds.add(bytes_of(text));
}

// With the byte that says what they are: three ranks that meet, and what one of them says last.
void add_words(Seeds& seeds) {
  using namespace lockstep::comm;
  const auto bytes_as = [](const auto& said) { return std::string(reinterpret_cast<const char*>(&said), sizeof said); };
  std::string hellos(1, '\0'), presents(1, '\1');
  for (const int rank : {1, 2}) {
    Hello hello{.rank = rank,
                .world = 3,
                .local_rank = rank - 1,
                .local_world = 2,
                .address = lockstep::rendezvous::parse_address(rank == 1 ? "10.0.0.2:4000" : "[::1]:4000").value()};
    put_text(hello.host, "h");
    put_text(hello.key, "job");
    hellos += bytes_as(hello);
    Present present{.rank = rank, .world = 3, .pid = 71};
    put_text(present.machine, "m");
    put_text(present.host, "h");
    presents += bytes_as(present);
  }
  const News news = news_of({.rank = 1, .step = 12, .phase = "update", .cause = "the disk is full"});
  for (const std::string& seed : {hellos, presents, "\2" + bytes_as(news)}) seeds.add(bytes_of(seed));
}

void add_traces(Seeds& seeds) {
  using namespace lockstep::trace;
  RankTrace trace{.run = "lockstep 7", .rank = 1, .world = 3, .host = "h", .phase = "forward", .begun = 41};
  seeds.add(bytes_of(format_trace(trace)));
  trace.failure = lockstep::Failure{.rank = 2, .step = 12, .phase = "update", .cause = "killed"};
  trace.groups = {{"world", {0, 1, 2}}, {"world/1", {1, 2}}};
  trace.calls = {{.number = 40,
                  .kind = "all_reduce",
                  .dtype = "Float",
                  .sizes = {2, 3},
                  .elements = 6,
                  .detail = "op sum",
                  .label = "bucket 3",
                  .phase = "forward",
                  .step = 12,
                  .begin = 1,
                  .end = 2},
                 {.number = 1, .group = 1, .kind = "recv", .phase = "forward", .peer = 2, .begin = 3},
                 {.number = 41, .kind = "barrier", .phase = "forward", .begin = 4}};
  seeds.add(bytes_of(format_trace(trace)));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: fuzz_seeds FOLDER\n";
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  Seeds decode(folder / "decode"), cifar(folder / "cifar"), idx(folder / "idx"), csv(folder / "csv"),
      safetensors(folder / "safetensors"), manifest(folder / "manifest"), pt(folder / "pt"),
      state_json(folder / "state_json"), messages(folder / "messages"), node_list(folder / "node_list"),
      trace(folder / "trace"), words(folder / "words");
  add_jpegs(decode);
  add_pngs(decode);
  add_idx(idx);
  add_tables(csv);
  add_safetensors(safetensors);
  add_manifests(manifest);
  add_pts(pt);
  add_states(state_json);
  add_messages(messages);
  add_node_lists(node_list);
  add_traces(trace);
  add_words(words);
  Bytes record(3073, 7);
  cifar.add(record);
  record.resize(2 * 3073, 11);
  cifar.add(record);
  record.resize(2 * 3074, 11);
  cifar.add(record);
  return 0;
}
