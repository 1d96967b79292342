#pragma once

// One transfer by HTTP, by libcurl.

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "lockstep/data/fetch/part_file.h"

namespace lockstep::data {

/// How long to wait for others.
struct Patience {
  std::chrono::seconds connect{20};
  std::chrono::seconds stall{30};  ///< in which less than 100 bytes a second come; found out within two such times
  std::chrono::seconds lock{120};  ///< for another fetch of the same file that adds nothing; longer than two stalls
};

struct Outcome {
  enum Kind {
    whole,    ///< all bytes are there
    broken,   ///< the transfer ended early: what came is in the part file, and asking for the rest makes sense
    refused,  ///< this address does not have the file
  };
  Kind kind = whole;
  std::string reason;  ///< of the last two, in words
};

/// Called with the size of the part file.
using OnBytes = std::function<void(std::uint64_t)>;

/// Completes `part`, which has no more, to `bytes` bytes from `url`, asking only for what is not there yet; when
/// the server sends everything all the same, in as many bytes as expected, or says that there is no such rest, the part
/// file is begun anew. Another answer leaves it as it is.
/// An https address may redirect to https only; five redirections at most. The proxies of the environment are
/// used. What `part` throws goes through.
Outcome download(const std::string& url, PartFile& part, std::uint64_t bytes, const Patience& patience,
                 const OnBytes& on_bytes);

/// Where the answer to a request for a rest begins, from its Content-Range ("bytes 100-199/200"); -1 when it
/// cannot be told.
std::int64_t range_start(const std::string& content_range);

}  // namespace lockstep::data
