#pragma once

#include <zlib.h>

#include <stdexcept>
#include <string>

namespace lockstep::testing {

/// `content` as a gzip file.
inline std::string gzip(const std::string& content) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string packed(deflateBound(&stream, uLong(content.size())), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = uInt(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = uInt(packed.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) throw std::runtime_error("cannot pack");
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

}  // namespace lockstep::testing
