#pragma once

#include <cstdint>
#include <string>

namespace millrace::api {

// 64 random bits, from a generator of the thread that the system seeded; not for secrets. Any thread.
uint64_t RandomNumber();

// 32 hexadecimal digits that no other call returns. Any thread.
std::string RandomHexId();

}  // namespace millrace::api
