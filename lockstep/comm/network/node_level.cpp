#include "lockstep/comm/network/node_level.h"

#include <algorithm>
#include <cstring>

namespace lockstep::comm {
namespace {

// So many rows at a time, of whose elements one of each fits into a chunk.
constexpr std::size_t kMostRows = 512;

}  // namespace

void NodeLevel::meet(const CollectiveNote& note) {
  node_.exchange_bytes(
      note, 0, 1, [](std::byte*, std::size_t, std::size_t) {},
      [](const std::vector<std::byte*>&, std::size_t, std::size_t) {});
}

// A chunk has so many elements for each taker, one's behind the other's; this rank's own are read where they are.
void NodeLevel::collect(const CollectiveNote& note, const std::byte* data, std::size_t width, const Shares& shares,
                        const Take& take) {
  const int own = node_.rank();
  std::vector<const std::byte*> inputs(std::size_t(node_.size()));
  node_.exchange_bytes(
      note, shares.longest(), width * std::size_t(shares.takers),
      [&](std::byte* part, std::size_t first, std::size_t n) {
        for (int taker = 0; taker < shares.takers; ++taker)
          if (taker != own)
            std::memcpy(part + std::size_t(taker) * n * width, data + (shares.begin(taker) + first) * width,
                        shares.overlap(taker, first, n) * width);
      },
      [&](const std::vector<std::byte*>& parts, std::size_t first, std::size_t n) {
        const std::size_t mine = shares.overlap(own, first, n);
        if (mine == 0) return;
        for (std::size_t peer = 0; peer < inputs.size(); ++peer)
          inputs[peer] = parts[peer] + std::size_t(own) * n * width;
        inputs[std::size_t(own)] = data + (shares.begin(own) + first) * width;
        take(inputs, first, mine);
      });
}

void NodeLevel::spread(const CollectiveNote& note, std::byte* data, std::size_t width, const Shares& shares) {
  if (node_.size() == 1) return meet(note);
  const int own = node_.rank();
  node_.exchange_bytes(
      note, shares.longest(), width,
      [&](std::byte* part, std::size_t first, std::size_t n) {
        const std::size_t mine = shares.overlap(own, first, n);
        if (mine > 0) std::memcpy(part, data + (shares.begin(own) + first) * width, mine * width);
      },
      [&](const std::vector<std::byte*>& parts, std::size_t first, std::size_t n) {
        for (int taker = 0; taker < shares.takers; ++taker)
          if (const std::size_t theirs = shares.overlap(taker, first, n); taker != own && theirs > 0)
            std::memcpy(data + (shares.begin(taker) + first) * width, parts[std::size_t(taker)], theirs * width);
      });
}

void NodeLevel::collect_rows(const CollectiveNote& note, const std::byte* data, std::size_t elements, std::size_t width,
                             const std::vector<int>& takers, const TakeRow& take) {
  const int own = node_.rank();
  std::vector<const std::byte*> inputs(std::size_t(node_.size()));
  for (std::size_t begin = 0; begin < takers.size(); begin += kMostRows) {
    const std::size_t end = std::min(begin + kMostRows, takers.size());
    node_.exchange_bytes(
        note, elements, width * (end - begin),
        [&](std::byte* part, std::size_t first, std::size_t n) {
          for (std::size_t row = begin; row < end; ++row)
            if (takers[row] != own)
              std::memcpy(part + (row - begin) * n * width, data + (row * elements + first) * width, n * width);
        },
        [&](const std::vector<std::byte*>& parts, std::size_t first, std::size_t n) {
          for (std::size_t row = begin; row < end; ++row) {
            if (takers[row] != own) continue;
            for (std::size_t peer = 0; peer < inputs.size(); ++peer)
              inputs[peer] = parts[peer] + (row - begin) * n * width;
            inputs[std::size_t(own)] = data + (row * elements + first) * width;
            take(int(row), inputs, first, n);
          }
        });
  }
}

void NodeLevel::spread_rows(const CollectiveNote& note, std::size_t bytes, const std::vector<std::vector<int>>& rows,
                            const std::vector<std::byte*>& places) {
  if (node_.size() == 1) return meet(note);
  const std::size_t own = std::size_t(node_.rank());
  std::size_t most = 0;
  for (const std::vector<int>& theirs : rows) most = std::max(most, theirs.size());
  for (std::size_t begin = 0; begin < most; begin += kMostRows) {
    const std::size_t end = std::min(begin + kMostRows, most);
    node_.exchange_bytes(
        note, bytes, end - begin,
        [&](std::byte* part, std::size_t first, std::size_t n) {
          for (std::size_t i = begin; i < std::min(end, rows[own].size()); ++i)
            std::memcpy(part + (i - begin) * n, places[std::size_t(rows[own][i])] + first, n);
        },
        [&](const std::vector<std::byte*>& parts, std::size_t first, std::size_t n) {
          for (std::size_t peer = 0; peer < rows.size(); ++peer)
            for (std::size_t i = begin; peer != own && i < std::min(end, rows[peer].size()); ++i)
              std::memcpy(places[std::size_t(rows[peer][i])] + first, parts[peer] + (i - begin) * n, n);
        });
  }
}

void NodeLevel::copy_from(const CollectiveNote& note, int rank, std::byte* data, std::size_t bytes) {
  if (node_.size() == 1) return meet(note);
  const bool gives = node_.rank() == rank;
  node_.exchange_bytes(
      note, bytes, 1,
      [&](std::byte* part, std::size_t first, std::size_t n) {
        if (gives) std::memcpy(part, data + first, n);
      },
      [&](const std::vector<std::byte*>& parts, std::size_t first, std::size_t n) {
        if (!gives) std::memcpy(data + first, parts[std::size_t(rank)], n);
      });
}

void NodeLevel::swap(const CollectiveNote& note, const std::byte* from, std::byte* to, std::size_t bytes) {
  const std::size_t own = std::size_t(node_.rank()), ranks = std::size_t(node_.size());
  if (bytes > 0) std::memcpy(to + own * bytes, from + own * bytes, bytes);
  if (ranks == 1) return meet(note);
  node_.exchange_bytes(
      note, bytes, ranks,
      [&](std::byte* part, std::size_t first, std::size_t n) {
        for (std::size_t peer = 0; peer < ranks; ++peer)
          if (peer != own) std::memcpy(part + peer * n, from + peer * bytes + first, n);
      },
      [&](const std::vector<std::byte*>& parts, std::size_t first, std::size_t n) {
        for (std::size_t peer = 0; peer < ranks; ++peer)
          if (peer != own) std::memcpy(to + peer * bytes + first, parts[peer] + own * n, n);
      });
}

}  // namespace lockstep::comm
