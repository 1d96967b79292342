#pragma once

// An sshd of a test's own, with keys that are made for it, and the ssh that gets in.

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/support/job.h"
#include "tests/support/scratch_folder.h"

namespace lockstep::testing {

// $1: a folder, $2: sshd, and then the command that is run where it can be reached. A mount namespace, for sshd wants a
// user of its own; no port, as ssh talks to an sshd that it starts itself for each host.
inline constexpr const char* kOwnSshd = R"sh(set -e
folder=$1 sshd=$2
shift 2
cd "$folder"
for key in host user; do [ -f $key ] || ssh-keygen -q -t ed25519 -N '' -f $key; done
{ cat /etc/passwd; getent passwd sshd > /dev/null || echo "sshd:x:65500:65534::/run/sshd:/usr/sbin/nologin"; } > passwd
mount --bind passwd /etc/passwd
mkdir -p /run/sshd
cat > sshd_config <<END
HostKey $folder/host
AuthorizedKeysFile $folder/user.pub
AcceptEnv TEST_JOB_MARK
StrictModes no
UsePAM no
PasswordAuthentication no
PidFile none
END
cat > ssh_config <<END
IdentityFile $folder/user
IdentitiesOnly yes
UserKnownHostsFile $folder/known
StrictHostKeyChecking accept-new
LogLevel ERROR
BatchMode yes
ProxyCommand $sshd -i -e -f $folder/sshd_config 2> $folder/sshd_log
END
exec "$@"
)sh";

/// LOCKSTEP_TEST_SSHD names another one, which may be a command of several words.
inline std::string sshd_command() {
  const char* named = std::getenv("LOCKSTEP_TEST_SSHD");
  return named != nullptr ? named : "/usr/sbin/sshd";
}

/// Why there can be none here; empty: there can.
inline std::string no_sshd() {
  const std::string sshd = sshd_command();
  Job may({"/bin/sh", "-c", "test -x " + sshd.substr(sshd.rfind(' ') + 1) + " && unshare -m true && ssh -V"});
  return may.wait() == 0 ? "" : "no sshd (openssh-server), or no mount namespace: " + may.err();
}

/// For --remote-shell, in a command that with_sshd() has made. What sshd starts has none of this environment: the mark
/// by which a job's processes are found travels with `-o SendEnv=TEST_JOB_MARK`.
inline std::string own_ssh(const ScratchFolder& folder) { return "ssh -F " + folder.file("ssh_config"); }

/// The command, in a mount namespace where own_ssh() gets in at every host.
inline std::vector<std::string> with_sshd(const ScratchFolder& folder, const std::vector<std::string>& command) {
  std::vector<std::string> all{"/usr/bin/unshare", "-m",          "sh", folder.write("own_sshd", kOwnSshd),
                               folder.path(),      sshd_command()};
  all.insert(all.end(), command.begin(), command.end());
  return all;
}

}  // namespace lockstep::testing
