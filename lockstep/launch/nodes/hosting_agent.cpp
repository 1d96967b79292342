#include "lockstep/launch/nodes/hosting_agent.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/launch/errand.h"
#include "lockstep/launch/machine/machine.h"
#include "lockstep/launch/nodes/meeting_place.h"
#include "lockstep/launch/nodes/secret.h"
#include "lockstep/rendezvous/own_address.h"

namespace lockstep::launch {

namespace meet = rendezvous;

namespace {

// How long the machines of the members may take to hear how the job has ended, if that is more than an agent may be
// silent; and how often that is looked at.
constexpr std::chrono::milliseconds kHostsFarewell{2'000}, kLook{1};
// How long the first look at the names holds up the agent, which hears no signal then.
constexpr std::chrono::milliseconds kFirstLook{1'000};

// Of what --local-addr means.
meet::SocketAddress local_address(const NodesSettings& settings, const meet::Resolved& found) {
  const std::string flag = "run: --local-addr " + settings.local_addr + ": ";
  if (found.addresses.empty()) throw UsageError(flag + found.why);
  const meet::SocketAddress address = found.addresses.front();
  if (!meet::reserve_port(address))
    throw UsageError(flag + "not an address of this machine (" + host_name() + "): " + std::strerror(errno));
  return address;
}

// Of one that the endpoint's name means.
meet::SocketAddress usable_address(const NodesSettings& settings, const meet::SocketAddress& resolved,
                                   const meet::SocketAddress& local) {
  const meet::SocketAddress address = meeting_place(settings, resolved, local, own_machine());
  if (local.length > 0 && local.bytes.ss_family != address.bytes.ss_family)
    throw UsageError("run: --local-addr " + settings.local_addr + " and --rdzv-endpoint " + settings.host + " (" +
                     meet::host_text(address) + ") are of different families: IPv4 and IPv6");
  return address;
}

bool must_host(const NodesSettings& settings) {
  return settings.is_host.value_or(settings.limits.fixed_ranks && settings.node_rank == 0);
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
                           std::function<void(const std::string& line)> says, const Resolver& resolver)
    : plan_(plan),
      settings_(*plan.nodes),
      loop_(loop),
      events_(std::move(events)),
      says_(std::move(says)),
      own_host_(host_name()),
      endpoint_(endpoint_text(settings_.host, settings_.port)),
      succession_(settings_, plan.leash < 0 && !settings_.limits.fixed_ranks, plan.max_restarts) {
  events_.joins = [this](int fd, meet::Join& join) { succession_.introduce(fd, join); };
  const auto look_up = [resolver, host = settings_.host, port = settings_.port, own = settings_.local_addr,
                        own_name = own_name_] {
    if (!own.empty() && own_name->addresses.empty()) *own_name = resolver("run: --local-addr", own, 0);
    return resolver("run: --rdzv-endpoint", host, port);
  };
  auto first = std::make_unique<Errand<meet::Resolved>>(look_up);
  // What takes longer is an event of the loop: signals and the leash are heard meanwhile.
  if (first->ends_within(kFirstLook)) usable(std::exchange(first, nullptr)->take());
  if (!settings_.secret_file.empty()) tls_ = std::make_unique<Tls>(read_secret(settings_.secret_file));
  line_ = new_line();
  if (address_.length > 0) listen();
  if (host_ != nullptr) return;
  // Where two listen in the same instant the kernel may refuse both, a port that is taken may be free later, and this
  // machine's address may come late: until somebody answers this one tries to host there.
  connect({.look_up = look_up,
           .usable =
               [this](const meet::Resolved& found) {
                 const meet::Resolved addresses = usable(found);
                 if (host_ == nullptr && address_.length > 0) listen();
                 return addresses;
               },
           .begun = std::move(first)});
}

bool HostingAgent::is_to_be_here() const { return host_ != nullptr || must_host(settings_); }

// Names come late, and their addresses change: a pod's that is started again.
meet::Resolved HostingAgent::usable(const meet::Resolved& found) {
  if (!settings_.local_addr.empty() && local_.length == 0) local_ = local_address(settings_, *own_name_);
  if (found.addresses.empty()) {
    if (must_host(settings_)) throw UsageError("run: --rdzv-endpoint " + settings_.host + ": " + found.why);
    return found;
  }
  meet::Resolved usable;
  std::optional<UsageError> wrong;  // with the first of those that are not
  for (const meet::SocketAddress& address : found.addresses) try {
      usable.addresses.push_back(usable_address(settings_, address, local_));
    } catch (const UsageError& error) {
      if (!wrong) wrong = error;
    }
  if (usable.addresses.empty()) throw *wrong;
  address_ = usable.addresses.front();
  const bool beyond = !std::ranges::all_of(usable.addresses, &meet::SocketAddress::is_loopback) ||
                      (local_.length > 0 && !local_.is_loopback());
  if (beyond && settings_.secret_file.empty() && !settings_.insecure)
    throw UsageError(
        "run: --rdzv-endpoint " + settings_.host +
        " is beyond this machine, and anybody could join: --secret-file FILE (lockstep secret new > FILE), "
        "or --insecure in a network that you trust");
  return usable;
}

void HostingAgent::listen() {
  if (!settings_.is_host.value_or(!settings_.limits.fixed_ranks || settings_.node_rank == 0)) return;
  if (!tries_to_host(refused_, reached_, address_)) return;
  meet::Listening listening = meet::listen_at(address_);
  if (!listening.fd) {
    if (!must_host(settings_)) {  // another agent's: this one joins it
      refused_ = RefusedPlace{.address = address_, .error = listening.error};
      return;
    }
    throw UsageError("run: cannot host at --rdzv-endpoint " + endpoint_ + " (" +
                     (settings_.is_host ? "is_host" : "--node-rank 0") + "): " +
                     (listening.error == EADDRINUSE ? std::string(kPortIsTaken)
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
            if (tls_ == nullptr) return std::make_unique<PlainDoor>(fd);
            return tls_->accept(fd);
          },
          .meets = events_.meets,
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

void HostingAgent::connect(HostLine::Where where) {
  where.local = [this] { return local_; };
  line_->connect(std::move(where), [this](int fd) -> std::unique_ptr<Channel> {
    reached_ = true;
    if (tls_ == nullptr) return std::make_unique<PlainChannel>(fd);
    return tls_->connect(fd);
  });
}

void HostingAgent::turn_to(const meet::Heir& heir, const std::string& run_id) {
  endpoint_ = succession_.address_of(heir.rank);
  line_ = new_line();
  if (heir.turn == meet::Turn::follow) {
    const std::optional<meet::SocketAddress> address = meet::parse_address(endpoint_);
    if (address)  // else its turn passes
      connect({.look_up = [found = *address] { return meet::Resolved{.addresses = {found}, .why = {}}; }});
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
  if (host_ == nullptr) return;
  using Clock = EventLoop::Clock;
  const Clock::time_point most = Clock::now() + std::max(kHostsFarewell, settings_.silence());
  while (!host_->all_has_arrived() && Clock::now() < most) loop_.turn(Clock::now() + kLook);
}

}  // namespace lockstep::launch
