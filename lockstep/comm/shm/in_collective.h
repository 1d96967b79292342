#pragma once

// What a rank's seat says of it for the length of a scope.

#include "lockstep/base/member.h"

namespace lockstep::comm {

/// That it is inside a collective.
class InCollective {
 public:
  explicit InCollective(base::Member& member) : member_(member), before_(member.phase()) {
    member_.set_phase(base::Phase::collective);
  }
  ~InCollective() { member_.set_phase(before_); }
  InCollective(const InCollective&) = delete;
  InCollective& operator=(const InCollective&) = delete;

 private:
  base::Member& member_;
  base::Phase before_;
};

/// That its waits end with what other nodes tell, though it is the outermost group's.
class ListeningAbroad {
 public:
  explicit ListeningAbroad(base::Member& member) : member_(member) { member_.set_listening(true); }
  ~ListeningAbroad() { member_.set_listening(false); }
  ListeningAbroad(const ListeningAbroad&) = delete;
  ListeningAbroad& operator=(const ListeningAbroad&) = delete;

 private:
  base::Member& member_;
};

/// While it waits, its member can say what it calls.
class Described {
 public:
  Described(base::Member& member, base::Doing doing) : member_(member) { member_.set_doing(doing); }
  ~Described() { member_.set_doing({}); }
  Described(const Described&) = delete;
  Described& operator=(const Described&) = delete;

 private:
  base::Member& member_;
};

}  // namespace lockstep::comm
