#pragma once

// What ranks say to one another in words of a fixed length, as they lie in memory (the machines of a job are alike):
// while a group forms, and last. A stranger may say it, too, so all that is read is looked at here, before anybody
// counts on it. Torch-free.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/rendezvous/init_method.h"
#include "lockstep/rendezvous/socket.h"

namespace lockstep::comm {

inline constexpr std::uint64_t kMeshMagic = 0x4c4b6d6573683031;  // "LKmesh01"
inline constexpr std::uint64_t kRollMagic = 0x4c4b726f6c6c3031;  // "LKroll01"
inline constexpr std::uint64_t kWireMagic = 0x4c4b776972653034;  // "LKwire04"
inline constexpr int kMostWorld = 4096;

/// What each connection of a group begins with: who does not know it is a stranger.
using Token = std::array<unsigned char, 16>;

/// What a rank says of itself to rank 0.
struct Hello {
  std::uint64_t magic = kMeshMagic;
  std::int32_t rank = 0, world = 0, local_rank = 0, local_world = 0;
  rendezvous::SocketAddress address = {};  ///< where it listens
  char host[64] = {};
  char key[256] = {};

  bool is_sound() const;
};

/// What a rank that knows no nodes says of itself to rank 0 (roll_call.h).
struct Present {
  std::uint64_t magic = kRollMagic;
  std::int32_t rank = 0, world = 0, pid = 0;
  rendezvous::Backend backend{};
  char machine[128] = {};
  char host[64] = {};
  char key[40] = {};  ///< that stands in the file with rank 0's address

  bool is_sound() const;
};

/// What a rank says to one of a lower number, of the same token.
struct Greeting {
  std::uint64_t magic = kMeshMagic;
  Token token{};
  std::int32_t rank = 0;
  std::int32_t news = 0;  ///< 1: no payload
};

/// Behind the first two nothing follows. `question`: the time of a rank for the one that it says so to is over; whom
/// does that one wait for itself? `answer`: for these, if any.
enum class NewsKind : std::uint32_t { failed, left, question, answer };

/// What a rank says last, and what it asks and answers before that.
struct News {
  std::uint64_t magic = kWireMagic;
  std::int32_t rank = -1;  ///< who failed; else the one that says so
  std::int32_t exit_code = 0;
  std::uint64_t step = 0;
  NewsKind kind = NewsKind::failed;
  std::uint32_t length = 0;  ///< of the cause, in bytes; of an answer it is the ranks
  char phase[32] = {};
  char cause[1024] = {};

  bool is_sound() const;
};

/// What came as a T; none: it is of something else, or says what no rank of ours would.
template <class T>
std::optional<T> words_in(std::span<const std::byte, sizeof(T)> bytes) {
  T said;
  std::memcpy(&said, bytes.data(), sizeof said);
  if (said.magic != T{}.magic) return std::nullopt;
  if constexpr (requires { said.is_sound(); })
    if (!said.is_sound()) return std::nullopt;
  return said;
}

/// What is too long is cut, and a zero ends it. `to` is all zeros.
template <std::size_t n>
void put_text(char (&to)[n], const std::string& text) {
  text.copy(to, n - 1);
}
/// What came may have no zero.
template <std::size_t n>
std::string text_in(const char (&from)[n]) {
  return {from, strnlen(from, n)};
}
/// The same for a person to read.
std::string shown_text(const char* from, std::size_t most);
template <std::size_t n>
std::string shown_in(const char (&from)[n]) {
  return shown_text(from, n);
}

/// Why rank 0 of `world` ranks does not take somebody in; empty: it does. `all`, by rank, have a world where they have
/// come.
std::string refusal_of(const Hello& hello, int world, const std::vector<Hello>& all);

/// The number of each rank's node: ranks of a node follow one another, and its number is that of the nodes before it.
/// UsageError where they do not.
std::vector<int> nodes_of(const std::vector<Hello>& ranks);

/// "rank 1 (process 71 on h)".
std::string who_is(const Present& one);

/// Why rank 0, the first of `all`, does not take somebody in; empty: it does. The others have a world where they have
/// come.
std::string contradiction(const Present& one, const std::vector<Present>& all);

/// What rank 0 has against those who have come, when all have: who comes late still hears it.
std::string disagreement(const std::vector<Present>& all);

/// A failure as news, which cut what is too long, and the other way round.
News news_of(const Failure& failure);
Failure failure_in(const News& news);

/// An answer, which leaves out the last of very many, and the other way round.
News answer_of(int rank, const std::vector<int>& awaited);
std::vector<int> awaited_in(const News& answer);

}  // namespace lockstep::comm
