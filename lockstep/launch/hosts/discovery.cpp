#include "lockstep/launch/hosts/discovery.h"

#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::launch {

Discovery::Discovery(EventLoop& loop, std::string script, const Signals& signals, Events events)
    : loop_(loop), script_(std::move(script)), signals_(signals), events_(std::move(events)) {
  ask();
}

void Discovery::ask() {
  output_.clear();
  late_ = false;
  const auto output = [this](int stream, const std::string& lines) {
    if (stream == 2) return events_.said(lines);
    if (output_.size() <= kLongestList) output_ += lines;
  };
  run_ =
      std::make_unique<RemoteAgent>(loop_, std::vector<std::string>{"/bin/sh", "-c", script_}, signals_,
                                    RemoteAgent::Events{.output = output, .ended = [this](int code) { on_end(code); }});
  deadline_ = loop_.at(EventLoop::Clock::now() + kLongestAsk, [this] {
    late_ = true;
    run_->kill();
  });
}

void Discovery::on_end(int code) {
  deadline_ = {};
  next_ = loop_.at(EventLoop::Clock::now() + kAskAgain, [this] { ask(); });
  if (late_) return events_.failed("it takes longer than " + std::to_string(kLongestAsk.count() / 1'000) + " s");
  if (code != 0) return events_.failed("it ends with exit code " + std::to_string(code));
  if (output_.size() > kLongestList)
    return events_.failed("it prints more than " + std::to_string(kLongestList) + " bytes");
  std::vector<HostSlots> hosts;
  try {
    hosts = parse_discovered_hosts(script_, output_, {});
  } catch (const UsageError& error) {
    return events_.failed(error.what());
  }
  events_.found(hosts);
}

}  // namespace lockstep::launch
