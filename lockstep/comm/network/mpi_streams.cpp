#include "lockstep/comm/network/mpi_streams.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMpiPiece = std::size_t(128) << 10;

// One message of MPI, and its bytes.
struct Piece {
  std::unique_ptr<std::byte[]> bytes;  // never cleared; made when first used
  LockstepMpiRequest request{};
  bool is_under_way = false;
  std::size_t size = 0, taken = 0;  // of a received one

  std::byte* room() {
    if (!bytes) bytes.reset(new std::byte[kMpiPiece]);
    return bytes.get();
  }
};

using Pair = std::array<Piece, 2>;  // one is filled or emptied while the other is under way

struct Lane {
  Pair out, in;
  std::size_t next_out = 0, next_in = 0;
};

class MpiStreams final : public Streams {
 public:
  MpiStreams(MpiSession& session, const Mesh& mesh, int tag) : session_(session), tag_(tag), lanes_(mesh.peers.size()) {
    for (const MeshPeer& peer : mesh.peers) ranks_.push_back(peer.rank);
    session_.begin_streams();
  }
  ~MpiStreams() override {
    leave();
    session_.end_streams();
  }

  Moved send(int peer, std::span<const iovec> pieces) override {
    return or_why<Moved>([&] { return Moved{.bytes = send_piece(peer, pieces)}; });
  }
  Moved receive(int peer, std::span<const iovec> pieces) override {
    return or_why<Moved>([&] { return Moved{.bytes = take(peer, pieces)}; });
  }
  Sent sent(int peer) override {
    const auto is_gone = [this](Piece& piece) { return is_over(piece); };
    return or_why<Sent>([&] { return Sent{.done = std::ranges::all_of(lanes_[std::size_t(peer)].out, is_gone)}; });
  }
  int polled(int) const override { return -1; }
  // Nothing wakes who waits for MPI. At first it looks without a pause, then ever more rarely.
  std::chrono::nanoseconds nap(std::chrono::nanoseconds idle) const override {
    return idle < 50us ? 0ns : std::clamp<std::chrono::nanoseconds>(idle / 8, 10us, 1ms);
  }
  bool end_with_news() const override { return true; }
  void give_up() override { session_.fail(); }
  std::int64_t offer() const override { return session_.next_tag(); }
  std::unique_ptr<Streams> part(Mesh& mesh, std::int64_t highest) override {
    for (MeshPeer& peer : mesh.peers) peer.data = {};
    session_.take_tag(highest);
    return mpi_streams(session_, mesh, int(highest));
  }

 private:
  template <class Result, class Try>
  static Result or_why(Try&& attempt) {
    try {
      return attempt();
    } catch (const Error& error) {
      Result result;
      result.error = error.what();
      return result;
    }
  }

  bool is_over(Piece& piece) const {
    if (!piece.is_under_way) return true;
    int done = 0;
    session_.call("MPI_Test", [&](const LockstepMpi& mpi) { return mpi.test(&piece.request, &done, &piece.size); });
    piece.is_under_way = done == 0;
    piece.taken = 0;
    return done != 0;
  }

  std::size_t send_piece(int peer, std::span<const iovec> pieces) {
    Lane& lane = lanes_[std::size_t(peer)];
    Piece& piece = lane.out[lane.next_out];
    if (!is_over(piece)) return 0;
    std::size_t size = 0;
    for (const auto& [from, length] : pieces) {
      const std::size_t part = std::min(length, kMpiPiece - size);
      if (part > 0) std::memcpy(piece.room() + size, from, part);
      size += part;
    }
    session_.call("MPI_Isend", [&](const LockstepMpi& mpi) {
      return mpi.send(piece.room(), size, ranks_[std::size_t(peer)], tag_, &piece.request);
    });
    piece.is_under_way = true;
    lane.next_out = 1 - lane.next_out;
    return size;
  }

  void post(Piece& piece, int peer) {
    session_.call("MPI_Irecv", [&](const LockstepMpi& mpi) {
      return mpi.receive(piece.room(), kMpiPiece, ranks_[std::size_t(peer)], tag_, &piece.request);
    });
    piece.is_under_way = true;
    piece.size = piece.taken = 0;
  }

  std::size_t take(int peer, std::span<const iovec> pieces) {
    Lane& lane = lanes_[std::size_t(peer)];
    Piece& piece = lane.in[lane.next_in];
    if (!piece.is_under_way && piece.taken == piece.size) post(piece, peer);
    // In the order in which they are emptied: MPI fills them in that in which they were posted.
    Piece& other = lane.in[1 - lane.next_in];
    if (!other.is_under_way && other.taken == other.size) post(other, peer);
    if (!is_over(piece)) return 0;
    std::size_t moved = 0;
    for (const auto& [to, length] : pieces) {
      const std::size_t part = std::min(length, piece.size - piece.taken);
      if (part > 0) std::memcpy(to, piece.bytes.get() + piece.taken, part);
      piece.taken += part;
      moved += part;
    }
    if (piece.taken == piece.size) {
      post(piece, peer);
      lane.next_in = 1 - lane.next_in;
    }
    return moved;
  }

  // What MPI still has in hand keeps its memory: a receive that no message has met ends at once, and a send when it is
  // taken. Where MPI may not be called any more it keeps all.
  void leave() noexcept {
    for (Lane& lane : lanes_) {
      for (Piece& piece : lane.in) let_go(piece, true);
      for (Piece& piece : lane.out) let_go(piece, false);
    }
  }
  void let_go(Piece& piece, bool is_receive) const noexcept {
    try {
      const bool may_call = session_.may_call();
      if (may_call ? is_over(piece) : !piece.is_under_way) return;
      if (may_call && is_receive) {
        session_.call("MPI_Cancel", [&](const LockstepMpi& mpi) { return mpi.cancel(&piece.request); });
        if (is_over(piece)) return;
      }
    } catch (const std::exception&) {
      // MPI keeps it
    }
    static_cast<void>(piece.bytes.release());
  }

  MpiSession& session_;
  const int tag_;
  std::vector<int> ranks_;  // in MPI's world, by rank
  std::vector<Lane> lanes_;
};

}  // namespace

std::unique_ptr<Streams> mpi_streams(MpiSession& session, const Mesh& mesh, int tag) {
  return std::make_unique<MpiStreams>(session, mesh, tag);
}

}  // namespace lockstep::comm
