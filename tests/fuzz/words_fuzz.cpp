// What comes to the doors of ranks, one after another, is taken in, refused in one line or left unread, and so is what
// a rank says last. The first byte says which of them the rest is.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/comm/network/words.h"
#include "tests/fuzz/accepted.h"

namespace {

using namespace lockstep::comm;
using Bytes = std::span<const std::byte>;

constexpr int kWorld = 3;

// None, where nothing whole is left, or it is a stranger's.
template <class T>
std::optional<T> next_words(Bytes& bytes) {
  if (bytes.size() < sizeof(T)) {
    bytes = {};
    return std::nullopt;
  }
  const std::optional<T> said = words_in<T>(bytes.first<sizeof(T)>());
  bytes = bytes.subspan(sizeof(T));
  return said;
}

void expect_line(const std::string& text) {
  for (const char letter : text)
    if (static_cast<unsigned char>(letter) < ' ' || letter == '\x7f') std::abort();
}

template <class T>
bool is_anybody_missing(const std::vector<T>& all) {
  for (const T& one : all)
    if (one.world == 0) return true;
  return false;
}

void meet_by_hello(Bytes bytes) {
  std::vector<Hello> all(kWorld);
  all[0] = {.rank = 0, .world = kWorld, .local_rank = 0, .local_world = 1};
  while (!bytes.empty()) {
    const std::optional<Hello> hello = next_words<Hello>(bytes);
    if (!hello) continue;
    expect_line(to_text(hello->address));
    const std::string why = refusal_of(*hello, kWorld, all);
    expect_line(why);
    if (why.empty()) all[std::size_t(hello->rank)] = *hello;
  }
  if (is_anybody_missing(all)) return;
  lockstep::testing::accepted([&] {
    int before = 0;
    for (const int node : nodes_of(all)) {
      if (node != before && node != before + 1) std::abort();
      before = node;
    }
  });
}

void meet_by_hand(Bytes bytes) {
  std::vector<Present> all(kWorld);
  all[0] = {.rank = 0, .world = kWorld};
  while (!bytes.empty()) {
    const std::optional<Present> one = next_words<Present>(bytes);
    if (!one) continue;
    const std::string why = contradiction(*one, all);
    expect_line(why);
    if (why.empty()) all[std::size_t(one->rank)] = *one;
  }
  if (!is_anybody_missing(all)) expect_line(disagreement(all));
}

void hear_news(Bytes bytes) {
  const std::optional<News> news = next_words<News>(bytes);
  if (!news) return;
  expect_line(failure_in(*news).to_string());
  if (awaited_in(*news).size() * sizeof(int) > sizeof news->cause) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const Bytes bytes = std::as_bytes(std::span(data + 1, size - 1));
  switch (data[0] % 3) {
    case 0:
      meet_by_hello(bytes);
      break;
    case 1:
      meet_by_hand(bytes);
      break;
    default:
      hear_news(bytes);
  }
  return 0;
}
