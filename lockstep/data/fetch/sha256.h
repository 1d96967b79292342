#pragma once

#include <cstddef>
#include <memory>
#include <string>

struct evp_md_ctx_st;

namespace lockstep::data {

/// SHA-256 of bytes that come in pieces; OpenSSL's. Not thread-safe.
class Sha256 {
 public:
  Sha256();
  Sha256(Sha256&&) noexcept = default;
  ~Sha256();

  void add(const void* bytes, std::size_t count);

  /// 64 lower-case hexadecimal digits. Call once, last.
  std::string digits();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

/// That of the file `path`. Error when it cannot be read.
std::string sha256_of_file(const std::string& path);

}  // namespace lockstep::data
