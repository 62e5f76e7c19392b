#include "api/api_keys.h"

namespace millrace::api {
namespace {

// Reads all of `given` whatever it finds.
bool EqualInConstantTime(std::string_view given, std::string_view key) {
  size_t difference = given.size() ^ key.size();
  for (size_t i = 0; i < given.size(); ++i)
    difference |= static_cast<unsigned char>(given[i] ^ key[i % key.size()]);
  return difference == 0;
}

// The credentials of "Bearer KEY"; empty for other schemes.
std::string_view BearerToken(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer";
  if (authorization.size() <= kScheme.size() || authorization[kScheme.size()] != ' ') return {};
  for (size_t i = 0; i < kScheme.size(); ++i)
    if ((authorization[i] | 0x20) != kScheme[i]) return {};
  authorization.remove_prefix(kScheme.size());
  while (authorization.starts_with(' ')) authorization.remove_prefix(1);
  return authorization;
}

}  // namespace

bool ApiKeys::Open(const HttpHeaders& headers) const {
  if (empty()) return true;
  const bool by_bearer = Knows(BearerToken(FindHeader(headers, "Authorization")));
  const bool by_header = Knows(FindHeader(headers, "x-api-key"));
  return by_bearer || by_header;
}

bool ApiKeys::Knows(std::string_view given) const {
  bool known = false;
  for (const std::string& key : keys_) known |= EqualInConstantTime(given, key);
  return known;
}

}  // namespace millrace::api
