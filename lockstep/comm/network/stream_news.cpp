// The news connections of a StreamWire: how ranks end, as they tell each other, and for whom they wait, as they ask.

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/base/process_id.h"
#include "lockstep/comm/network/stream_link.h"
#include "lockstep/comm/network/stream_wire.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

bool is_cut(int error) { return error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH; }

void tell(int fd, const void* news, std::size_t size) {
  [[maybe_unused]] const ssize_t sent = ::send(fd, news, size, MSG_DONTWAIT | MSG_NOSIGNAL);
}

bool would_wait(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

// Once, and of what happened first.
void StreamWire::tell_all(const News& news) {
  const std::lock_guard lock(news_mutex_);
  if (process_ != base::process_id() || std::exchange(told_, true)) return;  // a forked child is nobody
  for (const MeshPeer& peer : mesh_.peers)
    if (peer.news) tell(peer.news.get(), &news, sizeof news);
}

void StreamWire::listen() {
  hear_news(0ms);
  if (const auto failure = heard()) settings_.ties.failed(*failure);
}

std::optional<Failure> StreamWire::heard() {
  const std::lock_guard lock(news_mutex_);
  return heard_;
}

std::string StreamWire::cut_of(int peer) {
  const std::lock_guard lock(news_mutex_);
  return links_[std::size_t(peer)].cut;
}

bool StreamWire::has_left(int peer) {
  const std::lock_guard lock(news_mutex_);
  return links_[std::size_t(peer)].has_left;
}

// What it had to say last has come, or nothing will.
bool StreamWire::are_news_over(int peer) {
  const std::lock_guard lock(news_mutex_);
  return !mesh_.peers[std::size_t(peer)].news;
}

// Its news are over, and what it sent before has had time to come.
bool StreamWire::is_silent(int peer, Clock::time_point moved) {
  const std::lock_guard lock(news_mutex_);
  return !mesh_.peers[std::size_t(peer)].news &&
         Clock::now() - std::max(moved, links_[std::size_t(peer)].news_end) >= kNewsTime;
}

// What was sent before the failure that was heard of.
bool StreamWire::may_come(Clock::time_point moved) {
  const std::lock_guard lock(news_mutex_);
  return streams_->end_with_news() && Clock::now() - std::max(moved, heard_at_) < kOvertaken;
}

// Waits so long for news, unless there are some, and reads them.
void StreamWire::hear_news(milliseconds time) {
  std::vector<pollfd> polled = news_polled();
  if (poll(polled.data(), polled.size(), int(time.count())) > 0) read_news(polled);
}

std::vector<pollfd> StreamWire::news_polled() {
  const std::lock_guard lock(news_mutex_);
  std::vector<pollfd> polled;
  for (const MeshPeer& peer : mesh_.peers) polled.push_back({.fd = peer.news.get(), .events = POLLIN, .revents = 0});
  return polled;
}

// The first of `polled` are those of news_polled(), which another thread may have read and closed meanwhile.
void StreamWire::read_news(const std::vector<pollfd>& polled) {
  const std::lock_guard lock(news_mutex_);
  for (std::size_t peer = 0; peer < mesh_.peers.size(); ++peer)
    if (polled[peer].revents != 0 && mesh_.peers[peer].news) read_news(int(peer));
}

// They may come in pieces, and last words behind questions and answers. Who has left, or ended without a word, is
// missed by those only whom it owes something: what it has sent may still be on its way, and the end of that connection
// tells.
void StreamWire::read_news(int peer) {
  Link& link = links_[std::size_t(peer)];
  base::UniqueFd& fd = mesh_.peers[std::size_t(peer)].news;
  for (;;) {
    const ssize_t got = ::recv(fd.get(), link.news.data() + link.heard, link.news.size() - link.heard, MSG_DONTWAIT);
    if (got < 0 && would_wait(errno)) return;
    if (got < 0 && is_cut(errno)) link.cut = std::strerror(errno);
    link.heard += got > 0 ? std::size_t(got) : 0;
    if (got > 0 && link.heard < link.news.size()) return;
    std::optional<News> news;
    if (link.heard == link.news.size()) news = words_in<News>(link.news);
    if (news && news->kind >= NewsKind::question) {
      if (news->kind == NewsKind::answer) link.awaits = awaited_in(*news);
      if (news->kind == NewsKind::question) link.asks = asked_ = true;
      link.heard = 0;
      continue;
    }
    fd = {};
    link.news_end = Clock::now();
    if (link.heard < link.news.size()) return;
    // Of several the first counts: this rank's node may have been told of it already.
    if (news && news->kind == NewsKind::failed && !heard_) {
      heard_at_ = link.news_end;
      heard_ = failure_in(*news);
    }
    link.has_left = news.has_value();
    return;
  }
}

void StreamWire::answer(const std::function<std::vector<int>()>& awaited) {
  hear_news(0ms);
  tell_askers(awaited);
}

// None behind this rank's last words.
void StreamWire::tell_askers(const std::function<std::vector<int>()>& awaited) {
  {
    const std::lock_guard lock(news_mutex_);
    if (!asked_) return;
  }
  const News news = answer_of(name_of(settings_.rank), awaited());
  const std::lock_guard lock(news_mutex_);
  asked_ = false;
  for (std::size_t peer = 0; peer < links_.size(); ++peer) {
    const base::UniqueFd& fd = mesh_.peers[peer].news;
    if (std::exchange(links_[peer].asks, false) && fd && !told_) tell(fd.get(), &news, sizeof news);
  }
}

// Asks these, and whom those wait for that have answered. Returns who has not: such a one waits for nobody.
std::vector<int> StreamWire::ask_on(std::vector<int> peers) {
  const std::lock_guard lock(news_mutex_);
  const News question{.rank = name_of(settings_.rank), .kind = NewsKind::question};
  std::vector<int> silent;
  for (std::size_t i = 0; i < peers.size(); ++i) {
    Link& link = links_[std::size_t(peers[i])];
    const base::UniqueFd& fd = mesh_.peers[std::size_t(peers[i])].news;
    if (!std::exchange(link.was_asked, true) && fd && !told_) tell(fd.get(), &question, sizeof question);
    if (!link.awaits) {
      silent.push_back(peers[i]);
      continue;
    }
    for (int next = 0; next < int(links_.size()); ++next) {
      const bool is_awaited = std::ranges::find(*link.awaits, name_of(next)) != link.awaits->end();
      if (is_awaited && next != settings_.rank && std::ranges::find(peers, next) == peers.end()) peers.push_back(next);
    }
  }
  return silent;
}

}  // namespace lockstep::comm
