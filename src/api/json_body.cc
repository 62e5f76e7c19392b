#include "api/json_body.h"

#include <fmt/format.h>
#include <boost/json/memory_resource.hpp>
#include <boost/json/parser.hpp>

#include <exception>
#include <new>

#include "text/json_repair.h"

namespace millrace::api {
namespace {

// Refuses to hold more than a fixed number of bytes.
class BoundedResource final : public boost::json::memory_resource {
 public:
  explicit BoundedResource(size_t max_bytes) : left_(max_bytes) {}

 private:
  void* do_allocate(size_t bytes, size_t alignment) override {
    // The library frees under another alignment than it asked for; below the default they are all one.
    if (bytes > left_ || alignment > __STDCPP_DEFAULT_NEW_ALIGNMENT__) throw std::bad_alloc();
    void* const memory = ::operator new(bytes);
    left_ -= bytes;
    return memory;
  }
  void do_deallocate(void* memory, size_t bytes, size_t /*alignment*/) override {
    ::operator delete(memory);
    left_ += bytes;
  }
  bool do_is_equal(const boost::json::memory_resource& other) const noexcept override {
    return this == &other;
  }

  size_t left_;
};

ApiError NotJson(std::string why) {
  return {ApiErrorKind::kInvalidJson, std::move(why), ""};
}

}  // namespace

std::variant<boost::json::object, ApiError> ParseJsonBody(std::string_view body, const JsonLimits& limits) {
  if (body.empty()) return NotJson("The request body is empty; a JSON object was expected.");
  try {
    const std::string text = text::RepairJsonText(body);
    boost::json::parse_options options;
    options.max_depth = limits.max_depth;
    boost::json::parser parser({}, options);
    parser.reset(boost::json::make_shared_resource<BoundedResource>(limits.max_memory_bytes));
    boost::system::error_code failure;
    const size_t parsed = parser.write(text, failure);
    if (failure) {
      return NotJson(fmt::format("The request body is not valid JSON: {} at byte {} of {}.",
                                 failure.message(), parsed, text.size()));
    }
    boost::json::value root = parser.release();
    if (!root.is_object()) return NotJson("The request body is JSON, but not an object.");
    return std::move(root.get_object());
  } catch (const std::bad_alloc&) {
    return ApiError{ApiErrorKind::kBodyTooLarge,
                    fmt::format("The request body needs more than {} MiB in memory; send fewer values.",
                                limits.max_memory_bytes >> 20),
                    ""};
  } catch (const std::exception& error) {  // a string or an array longer than the library holds
    return NotJson(fmt::format("The request body cannot be read: {}.", error.what()));
  }
}

}  // namespace millrace::api
