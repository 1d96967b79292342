#include "lockstep/launch/nodes/hosting_agent.h"

#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/launch/machine/machine.h"
#include "lockstep/launch/nodes/meeting_place.h"
#include "lockstep/launch/nodes/secret.h"

namespace lockstep::launch {

namespace meet = rendezvous;

namespace {

// How long the members may take to be told how the job has ended.
constexpr std::chrono::milliseconds kHostsFarewell{2'000};

// Without a length: none.
meet::SocketAddress local_address(const NodesSettings& settings) {
  return settings.local_addr.empty() ? meet::SocketAddress{}
                                     : meet::resolve("run: --local-addr", settings.local_addr, 0);
}

std::string endpoint_text(const std::string& host, int port) {
  const bool six = host.find(':') != std::string::npos;
  return (six ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

// "10.0.0.2" of "10.0.0.2:4000", "::1" of "[::1]:4000".
std::string host_of(const std::string& endpoint) {
  const std::string host = endpoint.substr(0, endpoint.rfind(':'));
  return host.starts_with('[') ? host.substr(1, host.size() - 2) : host;
}

meet::Join application(const Plan& plan, const std::string& host) {
  return {.version = LOCKSTEP_VERSION,
          .run_id = plan.run_id,
          .nnodes = to_string(plan.nodes->limits),
          .backend = plan.nodes->backend,
          .host = host,
          .workers = plan.workers,
          .wanted_rank = plan.nodes->node_rank,
          .keep_alive = plan.nodes->keep_alive.count(),
          .misses = plan.nodes->misses};
}

}  // namespace

HostingAgent::HostingAgent(const Plan& plan, EventLoop& loop, HostLine::Events events,
                           std::function<void(const std::string& line)> says)
    : plan_(plan),
      settings_(*plan.nodes),
      loop_(loop),
      events_(std::move(events)),
      says_(std::move(says)),
      own_host_(host_name()),
      local_(local_address(settings_)),
      address_(meeting_place(settings_, meet::resolve("run: --rdzv-endpoint", settings_.host, settings_.port), local_,
                             own_machine())),
      endpoint_(endpoint_text(settings_.host, settings_.port)),
      succession_(settings_, plan.leash < 0 && !settings_.limits.fixed_ranks, plan.max_restarts) {
  events_.joins = [this](int fd, meet::Join& join) { succession_.introduce(fd, join); };
  const bool beyond = !address_.is_loopback() || (local_.length > 0 && !local_.is_loopback());
  if (beyond && settings_.secret_file.empty() && !settings_.insecure)
    throw UsageError(
        "run: --rdzv-endpoint " + settings_.host +
        " is beyond this machine, and anybody could join: --secret-file FILE (lockstep secret new > FILE), "
        "or --insecure in a network that you trust");
  if (!settings_.secret_file.empty()) tls_ = std::make_unique<Tls>(read_secret(settings_.secret_file));
  line_ = new_line();
  listen();
  if (host_ == nullptr) connect(address_);
}

void HostingAgent::listen() {
  if (!settings_.is_host.value_or(!settings_.limits.fixed_ranks || settings_.node_rank == 0)) return;
  meet::Listening listening = meet::listen_at(address_);
  if (!listening.fd) {
    const bool must = settings_.is_host.value_or(settings_.limits.fixed_ranks);
    if (!must) return;  // another agent's: this one joins it
    throw UsageError("run: cannot host at --rdzv-endpoint " + endpoint_ + " (" +
                     (settings_.is_host ? "is_host" : "--node-rank 0") + "): " +
                     (listening.error == EADDRINUSE
                          ? "the port is taken, by another host of this job or by another program"
                          : "the address is not one of this machine's (" + own_host_ + ")"));
  }
  host(host_settings(), std::move(listening.fd));
}

HostSettings HostingAgent::host_settings() {
  return {.nodes = settings_,
          .own = {.version = LOCKSTEP_VERSION,
                  .run_id = plan_.run_id,
                  .nnodes = to_string(settings_.limits),
                  .backend = settings_.backend,
                  .host = own_host_,
                  .keep_alive = settings_.keep_alive,
                  .misses = settings_.misses},
          .run_id = plan_.run_id.empty() ? random_id() : plan_.run_id,
          .master_addr = settings_.local_addr.empty() ? settings_.host : settings_.local_addr,
          .max_restarts = plan_.max_restarts,
          .no_restart_codes = plan_.no_restart_codes,
          .has_heirs = succession_.takes_part(),
          .reports = plan_.report.empty() ? nullptr : &reports_,
          .accept_channel = [this](int fd) -> std::unique_ptr<Channel> {
            if (tls_ == nullptr) return std::make_unique<PlainChannel>(fd);
            return tls_->accept(fd);
          },
          .says = says_};
}

std::unique_ptr<HostLine> HostingAgent::new_line() {
  return std::make_unique<HostLine>(loop_, settings_, endpoint_, application(plan_, own_host_), events_);
}

// This agent is a member like all others.
void HostingAgent::host(HostSettings settings, base::UniqueFd listener) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    throw_errno("launcher: socketpair");
  base::UniqueFd theirs(ends[0]), own(ends[1]);
  host_ = std::make_unique<Host>(loop_, std::move(settings), std::move(listener), std::move(theirs));
  line_->use(std::move(own), std::make_unique<PlainChannel>(ends[1]));
}

void HostingAgent::connect(const meet::SocketAddress& address) {
  line_->connect(address, local_, [this](int fd) -> std::unique_ptr<Channel> {
    if (tls_ == nullptr) return std::make_unique<PlainChannel>(fd);
    return tls_->connect(fd);
  });
}

void HostingAgent::turn_to(const meet::Heir& heir, const std::string& run_id) {
  endpoint_ = succession_.address_of(heir.rank);
  line_ = new_line();
  if (heir.turn == meet::Turn::follow) {
    const std::optional<meet::SocketAddress> address = meet::parse_address(endpoint_);
    if (address) connect(*address);  // else its turn passes
    return;
  }
  HostSettings settings = host_settings();
  settings.run_id = run_id;
  if (settings_.local_addr.empty()) settings.master_addr = host_of(endpoint_);
  settings.inherited = {.last = succession_.last(), .restarts = succession_.restarts()};
  host(std::move(settings), succession_.open_port());
}

void HostingAgent::dismiss(int code, const std::string& text) {
  if (host_ != nullptr) host_->dismiss(code, text);
}

void HostingAgent::settle() {
  if (host_ != nullptr) loop_.run_until([this] { return host_->settled(); }, EventLoop::Clock::now() + kHostsFarewell);
}

}  // namespace lockstep::launch
