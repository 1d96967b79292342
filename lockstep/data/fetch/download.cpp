#include "lockstep/data/fetch/download.h"

#include <curl/curl.h>

#include <array>
#include <charconv>
#include <exception>
#include <memory>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

constexpr long kMostRedirections = 5;
constexpr std::uint64_t kSlowest = 100;  // bytes per second
constexpr long kPartialContent = 206;
constexpr long kRangeNotSatisfiable = 416;

// libcurl calls receive() with each piece of the body; neither an exception nor a failure to write may go through it.
class Transfer {
 public:
  Transfer(const std::string& url, PartFile& part, std::uint64_t bytes, const OnBytes& on_bytes)
      : part_(part), bytes_(bytes), on_bytes_(on_bytes), curl_(start()) {
    const char* protocols = url.starts_with("https:") ? "https" : "http,https";
    set(CURLOPT_URL, url.c_str());
    set(CURLOPT_PROTOCOLS_STR, protocols);
    set(CURLOPT_REDIR_PROTOCOLS_STR, protocols);
    set(CURLOPT_FOLLOWLOCATION, 1L);
    set(CURLOPT_MAXREDIRS, kMostRedirections);
    set(CURLOPT_FAILONERROR, 1L);
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_USERAGENT, "lockstep/" LOCKSTEP_VERSION);
    set(CURLOPT_ERRORBUFFER, message_.data());
    set(CURLOPT_WRITEFUNCTION, receive);
    set(CURLOPT_WRITEDATA, this);
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_XFERINFOFUNCTION, watch);
    set(CURLOPT_XFERINFODATA, this);
  }

  Outcome run(const Patience& patience) {
    set(CURLOPT_CONNECTTIMEOUT, long(patience.connect.count()));
    const std::string rest = std::to_string(part_.size()) + "-";
    if (part_.size() > 0) set(CURLOPT_RANGE, rest.c_str());
    watch_ = {.length = patience.stall, .begin = Clock::now()};
    const CURLcode code = curl_easy_perform(curl_.get());
    if (failure_) std::rethrow_exception(failure_);
    return outcome(code);
  }

 private:
  static CURL* start() {
    static const CURLcode global = curl_global_init(CURL_GLOBAL_DEFAULT);
    CURL* curl = global == CURLE_OK ? curl_easy_init() : nullptr;
    if (curl == nullptr) throw Error("libcurl cannot start");
    return curl;
  }

  template <class Value>
  void set(CURLoption option, Value value) {
    const CURLcode code = curl_easy_setopt(curl_.get(), option, value);
    if (code != CURLE_OK) throw Error(std::string("libcurl: ") + curl_easy_strerror(code));
  }

  long status() const {
    long code = 0;
    curl_easy_getinfo(curl_.get(), CURLINFO_RESPONSE_CODE, &code);
    return code;
  }

  static std::size_t receive(char* bytes, std::size_t, std::size_t count, void* self) {
    Transfer& transfer = *static_cast<Transfer*>(self);
    try {
      return transfer.take(bytes, count) ? count : CURL_WRITEFUNC_ERROR;
    } catch (...) {
      transfer.failure_ = std::current_exception();
      return CURL_WRITEFUNC_ERROR;
    }
  }

  bool take(const char* bytes, std::size_t count) {
    if (!begun_ && !begin()) return false;
    if (count > bytes_ - part_.size()) {
      part_.restart();
      objection_ = "sends more than the " + std::to_string(bytes_) + " bytes expected";
      return false;
    }
    part_.append(bytes, count);
    on_bytes_(part_.size());
    return true;
  }

  // Called once a second and more. libcurl's own limit is on an average, which a quick start keeps up for seconds.
  static int watch(void* self, curl_off_t, curl_off_t received, curl_off_t, curl_off_t) {
    Watch& watch = static_cast<Transfer*>(self)->watch_;
    const Clock::time_point now = Clock::now();
    if (now - watch.begin < watch.length) return 0;
    watch.stalled = std::uint64_t(received) - watch.received < kSlowest * std::uint64_t(watch.length.count());
    watch.begin = now;
    watch.received = std::uint64_t(received);
    return watch.stalled ? 1 : 0;
  }

  // At the first bytes: are they what the part file goes on with?
  bool begin() {
    begun_ = true;
    if (part_.size() == 0) return true;
    if (status() != kPartialContent) return begin_with_all();
    curl_header* header = nullptr;
    const bool said = curl_easy_header(curl_.get(), "Content-Range", 0, CURLH_HEADER, -1, &header) == CURLHE_OK;
    const std::string range = said ? header->value : "";
    if (range_start(range) == std::int64_t(part_.size())) return true;
    objection_ = "asked for bytes from " + std::to_string(part_.size()) + " on, answers with '" + range + "'";
    part_.restart();
    return false;
  }

  // The answer is no rest. What is kept gives way to the whole file only, not to any page that says 200.
  bool begin_with_all() {
    curl_off_t length = -1;
    curl_easy_getinfo(curl_.get(), CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    if (length >= 0 && std::uint64_t(length) == bytes_) {
      part_.restart();
      return true;
    }
    objection_ = "asked for bytes from " + std::to_string(part_.size()) + " on, answers with HTTP " +
                 std::to_string(status()) + " and " +
                 (length < 0 ? "a body of unknown length" : std::to_string(length) + " bytes") + ", not with all " +
                 std::to_string(bytes_);
    return false;
  }

  Outcome outcome(CURLcode code) {
    if (!objection_.empty()) return {Outcome::refused, objection_};
    if (code == CURLE_HTTP_RETURNED_ERROR) {
      if (status() == kRangeNotSatisfiable) part_.restart();
      return {Outcome::refused, "HTTP " + std::to_string(status())};
    }
    if (watch_.stalled) {
      return {Outcome::broken, "no answer, or nearly none, for " + std::to_string(watch_.length.count()) + " s"};
    }
    if (code != CURLE_OK) {
      return {Outcome::broken, message_[0] != '\0' ? message_.data() : curl_easy_strerror(code)};
    }
    if (part_.size() == bytes_) return {};
    const std::string got = std::to_string(part_.size());
    part_.restart();
    return {Outcome::refused, "has " + got + " bytes, " + std::to_string(bytes_) + " expected"};
  }

  using Clock = std::chrono::steady_clock;

  // Of the time from `begin` on, `length` long.
  struct Watch {
    std::chrono::seconds length{};
    Clock::time_point begin;
    std::uint64_t received = 0;  // before it
    bool stalled = false;        // hardly anything came in it
  };

  PartFile& part_;
  std::uint64_t bytes_;
  const OnBytes& on_bytes_;
  struct Cleanup {
    void operator()(CURL* curl) const { curl_easy_cleanup(curl); }
  };
  std::unique_ptr<CURL, Cleanup> curl_;
  std::array<char, CURL_ERROR_SIZE> message_{};
  Watch watch_;
  bool begun_ = false;
  std::string objection_;
  std::exception_ptr failure_;
};

}  // namespace

Outcome download(const std::string& url, PartFile& part, std::uint64_t bytes, const Patience& patience,
                 const OnBytes& on_bytes) {
  if (part.size() == bytes) return {};
  return Transfer(url, part, bytes, on_bytes).run(patience);
}

std::int64_t range_start(const std::string& content_range) {
  constexpr std::string_view kUnit = "bytes ";
  if (!content_range.starts_with(kUnit)) return -1;
  std::int64_t start = -1;
  const char* end = content_range.data() + content_range.size();
  const auto [stop, error] = std::from_chars(content_range.data() + kUnit.size(), end, start);
  return error == std::errc() && stop != end && *stop == '-' ? start : -1;
}

}  // namespace lockstep::data
