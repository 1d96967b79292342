#pragma once

// A Wire whose payload goes by streams (streams.h) and whose news by connections (tcp_mesh.h): no thread of its own,
// one wait for all that moves.

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/process_id.h"
#include "lockstep/comm/network/streams.h"
#include "lockstep/comm/network/tcp_mesh.h"
#include "lockstep/comm/network/wire.h"

namespace lockstep::comm {

struct News;

class StreamWire final : public Wire {
 public:
  /// How long the news of a failure may come behind the end of the connection that it explains, and payload behind the
  /// end of the news, where both do not take the same way.
  static constexpr std::chrono::milliseconds kNewsTime{300};

  /// How long at the deadline a rank that knows less than another one waits for the word of that, and for answers to
  /// what it asks: who gives none may have begun so much later to wait. A thirtieth of the group's timeout, from 300 ms
  /// to 10 s.
  static std::chrono::milliseconds word_time(std::chrono::milliseconds timeout) {
    return std::clamp<std::chrono::milliseconds>(timeout / 30, kNewsTime, std::chrono::seconds(10));
  }

  struct Settings {
    int rank = 0;
    std::chrono::milliseconds timeout{};
    WireTies ties = {};
  };

  /// `streams`: of the mesh's ranks; null: the mesh's own connections for payload.
  StreamWire(Mesh mesh, Settings settings, std::unique_ptr<Streams> streams = nullptr);
  /// Tells the peers that this rank has left, and why if its node has failed.
  ~StreamWire() override;

  void carry(Messages& messages) override;
  std::unique_ptr<Wire> part(const std::vector<int>& ranks, WireTies ties) override;
  int name_of(int rank) const override { return mesh_.peers[std::size_t(rank)].rank; }
  void listen() override;
  void answer(const std::function<std::vector<int>()>& awaited) override;
  void abort(const Failure& failure) override;
  std::chrono::milliseconds timeout() const override { return settings_.timeout; }
  std::uint64_t bytes_sent() const override { return bytes_sent_; }

 private:
  // While one lives, this rank's node knows that the rank may wait for others.
  class Away {
   public:
    explicit Away(const WireTies& ties) : ties_(ties) { ties_.away(1); }
    ~Away() { ties_.away(-1); }
    Away(const Away&) = delete;
    Away& operator=(const Away&) = delete;

   private:
    const WireTies& ties_;
  };
  struct Link;
  using Clock = std::chrono::steady_clock;
  /// Each slice of a wait ends with a look at this rank's node and at the deadline.
  static constexpr std::chrono::milliseconds kSlice{10};
  /// How long payload may come behind the news of a failure that it was sent before, likewise.
  static constexpr std::chrono::milliseconds kOvertaken{50};

  void move_all(Messages& messages);
  bool begin(Messages& messages);
  void end(const Failure& failure);
  bool move_out(Link& link, Messages& messages);
  bool move_in(Link& link, Messages& messages);
  void check_header(Link& link);
  void check_sum(Link& link);
  std::string damaged(int peer, const CollectiveNote& note) const;
  [[noreturn]] void refuse(const std::string& cause);
  void wait_for(Clock::time_point moved);
  void hear_news(std::chrono::milliseconds time);
  std::vector<pollfd> news_polled();
  void read_news(const std::vector<pollfd>& polled);
  void read_news(int peer);
  void tell_all(const News& news);
  void tell_askers(const std::function<std::vector<int>()>& awaited);
  std::vector<int> ask_on(std::vector<int> peers);
  [[noreturn]] void lost(int peer, const std::string& how);
  [[noreturn]] void fail(Failure failure);
  [[noreturn]] void give_up();
  std::chrono::milliseconds grace_for(const std::vector<int>& late) const;
  void connect_part(const std::vector<int>& ranks, int listener, const Roster& roster, Mesh& mesh);
  std::optional<Failure> heard();
  std::string cut_of(int peer);
  bool has_left(int peer);
  bool are_news_over(int peer);
  bool is_silent(int peer, Clock::time_point moved);
  bool may_come(Clock::time_point moved);
  std::string shown(int peer) const;
  int seat_of(int peer) const;
  std::string placed(int peer) const;
  const CollectiveNote& awaited() const;
  std::vector<int> owed_peers() const;
  std::vector<int> owed_names() const;
  std::string late_peers() const;
  std::string arrived() const;
  bool speaks_for_its_node() const;
  void tell_stall();

  Mesh mesh_;
  const std::unique_ptr<Streams> streams_;
  const Settings settings_;
  const int process_ = base::process_id();
  bool told_stall_ = false;  ///< in this exchange
  std::uint64_t bytes_sent_ = 0;
  std::vector<Link> links_;       ///< by rank
  std::optional<Failure> over_;   ///< why the wire is of no use any more
  std::mutex news_mutex_;         ///< of the peers' news connections, what has come through them, and:
  std::optional<Failure> heard_;  ///< of a peer's failure
  Clock::time_point heard_at_{};
  bool asked_ = false;  ///< by a peer that has no answer yet
  bool told_ = false;   ///< the peers, how this rank ended
};

}  // namespace lockstep::comm
