#pragma once

// The hosting agent as a member of the job has it: the line to it, and the host itself where this agent hosts. When it
// is lost, another one's, or this one in its place.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/launch/event_loop.h"
#include "lockstep/launch/nodes/host.h"
#include "lockstep/launch/nodes/host_line.h"
#include "lockstep/launch/nodes/meeting_place.h"
#include "lockstep/launch/nodes/report_collection.h"
#include "lockstep/launch/nodes/succession.h"
#include "lockstep/launch/nodes/tls.h"
#include "lockstep/launch/plan.h"
#include "lockstep/rendezvous/socket.h"

namespace lockstep::launch {

/// What an agent says, with exit code 2, that must host and finds somebody listening there: whoever has chosen the port
/// may choose another.
inline constexpr std::string_view kPortIsTaken = "the port is taken, by another host of this job or by another program";

/// What a name means: as rendezvous::try_resolve(), on any thread.
using Resolver = std::function<rendezvous::Resolved(const std::string& what, const std::string& host, int port)>;

class HostingAgent {
 public:
  /// Resolves the endpoint of `plan.nodes`, listens there when this agent hosts, and calls else; one that need not host
  /// waits for a name that nobody knows yet, and resolves it anew for each try. That takes a second here at most; what
  /// is known later is an event of the loop, which may throw what this does. `events.joins` is set here, and
  /// `events.meets` tells of those who are let in, too, where this agent hosts. UsageError: a --local-addr that is not
  /// this machine's or of another family, an endpoint that cannot be resolved, whose address on this machine cannot be
  /// told, that this agent must host and cannot, or that is beyond loopback without a key. `says`: for people at this
  /// node. `resolver`: the system's, which may take as long as it likes, or a test's.
  HostingAgent(const Plan& plan, EventLoop& loop, HostLine::Events events,
               std::function<void(const std::string& line)> says, const Resolver& resolver = rendezvous::try_resolve);
  HostingAgent(const HostingAgent&) = delete;
  HostingAgent& operator=(const HostingAgent&) = delete;

  HostLine& line() { return *line_; }
  Succession& succession() { return succession_; }
  /// Those that the members send to this agent.
  ReportCollection& reports() { return reports_; }
  bool is_here() const { return host_ != nullptr; }
  /// Whether it is here, or is to be once the endpoint's name is known.
  bool is_to_be_here() const;
  /// Where it is, in words.
  const std::string& endpoint() const { return endpoint_; }

  /// Calls the heir, or hosts here; `run_id` is that of the job. The line is another one then.
  void turn_to(const rendezvous::Heir& heir, const std::string& run_id);
  /// Ends the job for everybody, if this agent hosts.
  void dismiss(int code, const std::string& text);
  /// At the end: the others, if this agent hosts, hear how the job has ended. As long as one may be silent, at most.
  void settle();

 private:
  rendezvous::Resolved usable(const rendezvous::Resolved& found);
  void listen();
  HostSettings host_settings();
  std::unique_ptr<HostLine> new_line();
  void host(HostSettings settings, base::UniqueFd listener);
  void connect(HostLine::Where where);

  const Plan& plan_;
  const NodesSettings settings_;
  EventLoop& loop_;
  HostLine::Events events_;
  const std::function<void(const std::string& line)> says_;
  const std::string own_host_;
  // What --local-addr means: written by a look-up, and read here when that has ended.
  const std::shared_ptr<rendezvous::Resolved> own_name_ = std::make_shared<rendezvous::Resolved>();
  rendezvous::SocketAddress local_;      // --local-addr; without a length: none, or its name is not known yet
  rendezvous::SocketAddress address_;    // of the endpoint, its first; without a length: the name is not known yet
  std::optional<RefusedPlace> refused_;  // the last time that this agent tried to host
  bool reached_ = false;                 // somebody at the endpoint has taken a connection of this agent
  std::unique_ptr<Tls> tls_;             // before all that uses it
  ReportCollection reports_;             // before the host
  std::unique_ptr<Host> host_;
  std::string endpoint_;
  Succession succession_;
  std::unique_ptr<HostLine> line_;  // never null
};

}  // namespace lockstep::launch
