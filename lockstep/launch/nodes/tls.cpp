#include "lockstep/launch/nodes/tls.h"

#include <dlfcn.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/rendezvous/messages.h"

namespace lockstep::launch {
namespace {

constexpr std::string_view kIdentity = "lockstep agents";
constexpr unsigned char kSuite[] = {0x13, 0x01};  // TLS_AES_128_GCM_SHA256

// clang-format off
#define LOCKSTEP_USED_OF_LIBSSL(X) X(TLS_method) X(SSL_CTX_new) X(SSL_CTX_free) X(SSL_CTX_ctrl) \
  X(SSL_CTX_set_ciphersuites) X(SSL_CTX_set_num_tickets) X(SSL_CTX_set_psk_use_session_callback) \
  X(SSL_CTX_set_psk_find_session_callback) X(SSL_CTX_set_ex_data) X(SSL_CTX_get_ex_data) X(SSL_get_SSL_CTX) \
  X(SSL_new) X(SSL_free) X(SSL_set_fd) X(SSL_set_verify) X(ERR_clear_error) X(ERR_peek_error) X(SSL_set_accept_state) \
  X(SSL_set_connect_state) X(SSL_read) X(SSL_write) X(SSL_get_error) X(SSL_is_init_finished) X(SSL_ctrl) \
  X(SSL_session_reused) X(SSL_CIPHER_find) X(SSL_SESSION_new) X(SSL_SESSION_free) X(SSL_SESSION_set1_master_key) \
  X(SSL_SESSION_set_cipher) X(SSL_SESSION_set_protocol_version)
// clang-format on

// What is used of libssl, by the types that its header gives.
struct Library {
#define LOCKSTEP_MEMBER(name) decltype(&::name) name = find<decltype(&::name)>(#name);
  LOCKSTEP_USED_OF_LIBSSL(LOCKSTEP_MEMBER)
#undef LOCKSTEP_MEMBER

 private:
  // It stays loaded: its memory is freed at exit.
  static void* handle() {
    static void* const loaded = dlopen("libssl.so.3", RTLD_NOW | RTLD_LOCAL);
    if (loaded == nullptr)
      throw UsageError("run: --secret-file needs OpenSSL 3 (Debian's libssl3): " + std::string(dlerror()));
    return loaded;
  }
  template <class Function>
  static Function find(const char* name) {
    void* const found = dlsym(handle(), name);
    if (found == nullptr) throw UsageError("run: libssl.so.3 has no " + std::string(name));
    return reinterpret_cast<Function>(found);
  }
};

const Library& ssl() {
  static const Library library;
  return library;
}

SSL_SESSION* session_of(SSL* connection) {
  const auto* secret = static_cast<const Secret*>(ssl().SSL_CTX_get_ex_data(ssl().SSL_get_SSL_CTX(connection), 0));
  SSL_SESSION* session = ssl().SSL_SESSION_new();
  const SSL_CIPHER* suite = ssl().SSL_CIPHER_find(connection, kSuite);
  if (session != nullptr && suite != nullptr &&
      ssl().SSL_SESSION_set1_master_key(session, secret->data(), secret->size()) == 1 &&
      ssl().SSL_SESSION_set_cipher(session, suite) == 1 &&
      ssl().SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1)
    return session;
  ssl().SSL_SESSION_free(session);
  return nullptr;
}

int offer_key(SSL* connection, const EVP_MD*, const unsigned char** identity, std::size_t* size,
              SSL_SESSION** session) {
  *session = session_of(connection);
  *identity = reinterpret_cast<const unsigned char*>(kIdentity.data());
  *size = kIdentity.size();
  return *session != nullptr ? 1 : 0;
}

int find_key(SSL* connection, const unsigned char* identity, std::size_t size, SSL_SESSION** session) {
  const bool ours = size == kIdentity.size() && std::memcmp(identity, kIdentity.data(), size) == 0;
  *session = ours ? session_of(connection) : nullptr;
  return 1;
}

class TlsChannel : public Channel {
 public:
  TlsChannel(SSL_CTX* context, int fd, bool accepts)
      : connection_(ssl().SSL_new(context)), fd_(fd), looks_for_torchrun_(accepts) {
    if (connection_ == nullptr || ssl().SSL_set_fd(connection_, fd) != 1) {
      ssl().SSL_free(connection_);
      throw Error("launcher: OpenSSL makes no connection");
    }
    ssl().SSL_ctrl(connection_, SSL_CTRL_MODE, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER,
                   nullptr);
    if (!accepts) ssl().SSL_set_verify(connection_, SSL_VERIFY_PEER, nullptr);  // no certificate will do
    accepts ? ssl().SSL_set_accept_state(connection_) : ssl().SSL_set_connect_state(connection_);
  }
  ~TlsChannel() override { ssl().SSL_free(connection_); }

  Moved read(char* into, std::size_t size) override {
    if (looks_for_torchrun_) {
      char bytes[rendezvous::kTcpStoreProbe.size()];
      const ssize_t size = recv(fd_, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
      const std::string_view first(bytes, std::size_t(std::max<ssize_t>(0, size)));
      if (first == rendezvous::kTcpStoreProbe) return {.state = State::closed, .why = rendezvous::kProbed};
      if (first.starts_with("LKr")) return refuse_plainly();
      if (first.starts_with(rendezvous::kTcpStoreHello))
        return {.state = State::closed, .why = rendezvous::kTorchrunsProtocol};
      looks_for_torchrun_ = size < 0;
    }
    ssl().ERR_clear_error();  // what another connection has left would be taken for this one's
    return moved(ssl().SSL_read(connection_, into, int(size)));
  }
  Moved write(const char* from, std::size_t size) override {
    ssl().ERR_clear_error();
    return moved(ssl().SSL_write(connection_, from, int(std::min<std::size_t>(size, 1 << 20))));
  }
  bool waits_for_room() const override { return waits_for_room_; }

 private:
  Moved moved(int result) {
    const int error = ssl().SSL_get_error(connection_, result);
    waits_for_room_ = error == SSL_ERROR_WANT_WRITE;
    met_ = met_ || ssl().SSL_is_init_finished(connection_) == 1;  // not any more after an error
    // A peer that proved itself by a certificate instead has proved nothing.
    if (met_ && ssl().SSL_session_reused(connection_) != 1) return {.state = State::closed, .why = kNoKey};
    if (result > 0) return {.bytes = std::size_t(result)};
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return {.state = State::waits};
    return {.state = State::closed, .why = met_ || !says_no(error) ? kClosed : kNoKey};
  }

  // An agent of ours without a key, which would not tell an alert of TLS from another program's words. What it has said
  // is taken first: with something unread the answer might be taken back.
  Moved refuse_plainly() {
    char bytes[2 * rendezvous::kLongestFromStranger];
    recv(fd_, bytes, sizeof bytes, MSG_DONTWAIT);
    const std::string answer = to_frame(rendezvous::Refused{
        "the hosting agent does not let this one in: the job has a key, and --secret-file must be the same on all "
        "nodes"});
    send(fd_, answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return {.state = State::closed, .why = kNoKey};
  }

  // A connection that just ends says nothing about a key: a hosting agent does so to one of too many strangers.
  static bool says_no(int error) {
    return error == SSL_ERROR_SSL && ERR_GET_REASON(ssl().ERR_peek_error()) != SSL_R_UNEXPECTED_EOF_WHILE_READING;
  }

  SSL* const connection_;
  const int fd_;
  bool looks_for_torchrun_;  // in the first bytes, which a handshake would not tell from garbage
  bool waits_for_room_ = false;
  bool met_ = false;  // both have shown that they have the key
};

}  // namespace

struct Tls::Context {
  explicit Context(const Secret& key) : secret(key), context(ssl().SSL_CTX_new(ssl().TLS_method())) {
    const bool made = context != nullptr &&
                      ssl().SSL_CTX_ctrl(context, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION, nullptr) == 1 &&
                      ssl().SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") == 1 &&
                      ssl().SSL_CTX_set_num_tickets(context, 0) == 1 &&
                      ssl().SSL_CTX_set_ex_data(context, 0, &secret) == 1;
    if (!made) {
      ssl().SSL_CTX_free(context);
      throw Error("launcher: OpenSSL makes no context for TLS 1.3");
    }
    ssl().SSL_CTX_ctrl(context, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, nullptr);
    ssl().SSL_CTX_set_psk_use_session_callback(context, offer_key);
    ssl().SSL_CTX_set_psk_find_session_callback(context, find_key);
  }
  ~Context() { ssl().SSL_CTX_free(context); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Secret secret;
  SSL_CTX* const context;
};

Tls::Tls(const Secret& secret) : context_(std::make_unique<Context>(secret)) {}

Tls::~Tls() = default;

std::unique_ptr<Channel> Tls::accept(int fd) const {
  return std::make_unique<TlsChannel>(context_->context, fd, /*accepts=*/true);
}

std::unique_ptr<Channel> Tls::connect(int fd) const {
  return std::make_unique<TlsChannel>(context_->context, fd, /*accepts=*/false);
}

}  // namespace lockstep::launch
