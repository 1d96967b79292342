#include "lockstep/launch/hosts/discovery.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::launch {

Discovery::Discovery(EventLoop& loop, std::string script, const Signals& signals, const rlimit& descriptors,
                     Events events)
    : loop_(loop),
      script_(std::move(script)),
      signals_(signals),
      descriptors_(descriptors),
      events_(std::move(events)) {
  ask();
}

void Discovery::ask() {
  output_.clear();
  errors_.clear();
  late_ = false;
  const auto output = [this](int stream, const std::string& lines) {
    std::string& text = stream == 1 ? output_ : errors_;
    if (text.size() <= kLongestList) text += lines;
  };
  try {
    run_ = std::make_unique<RemoteAgent>(
        loop_, std::vector<std::string>{"/bin/sh", "-c", script_}, signals_, descriptors_,
        RemoteAgent::Events{.output = output, .ended = [this](int code) { on_end(code); }});
  } catch (const Error& error) {
    next_ = loop_.at(EventLoop::Clock::now() + kAskAgain, [this] { ask(); });
    return events_.failed(error.what());
  }
  run_->let_go();  // nothing is to be read from standard input
  deadline_ = loop_.at(EventLoop::Clock::now() + kLongestAsk, [this] {
    late_ = true;
    run_->kill();
  });
}

void Discovery::on_end(int code) {
  deadline_ = {};
  next_ = loop_.at(EventLoop::Clock::now() + kAskAgain, [this] { ask(); });
  if (std::exchange(said_, errors_) != errors_ && !errors_.empty()) events_.said(errors_);
  if (late_) return events_.failed("it takes longer than " + std::to_string(kLongestAsk.count() / 1'000) + " s");
  if (code != 0) return events_.failed("it ends with exit code " + std::to_string(code));
  if (output_.size() > kLongestList)
    return events_.failed("it prints more than " + std::to_string(kLongestList) + " bytes");
  std::vector<HostSlots> hosts;
  try {
    hosts = parse_discovered_hosts(base::shown(script_), output_, {});
  } catch (const UsageError& error) {
    return events_.failed(error.what());
  }
  events_.found(hosts);
}

}  // namespace lockstep::launch
