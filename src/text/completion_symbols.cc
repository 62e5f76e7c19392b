#include "text/completion_symbols.h"

#include <algorithm>
#include <array>
#include <utility>

namespace millrace::text {
namespace {

struct Literal {
  char symbol;
  std::string_view text;
};

constexpr std::array kLiterals = {
    Literal{kDsmlSymbol, "｜DSML｜"},
    Literal{kThinkBeginSymbol, "<think>"},
    Literal{kThinkEndSymbol, "</think>"},
    Literal{kEndSymbol, "<｜end▁of▁sentence｜>"},
};

// Those that PushSpelled recognises; all begin with `<` and hold no other.
constexpr std::array kScanned = {kLiterals[1], kLiterals[2], kLiterals[3]};

}  // namespace

std::string_view SymbolLiteral(char symbol) {
  return std::ranges::find(kLiterals, symbol, &Literal::symbol)->text;
}

size_t SpelledSize(std::string_view symbols) {
  size_t size = symbols.size();
  for (const char symbol : symbols) {
    if (IsControlSymbol(symbol)) size += SymbolLiteral(symbol).size() - 1;
  }
  return size;
}

void AppendSpelled(std::string_view symbols, std::string& text) {
  while (!symbols.empty()) {
    const size_t plain =
        static_cast<size_t>(std::ranges::find_if(symbols, IsControlSymbol) - symbols.begin());
    text += symbols.substr(0, plain);
    symbols.remove_prefix(plain);
    if (symbols.empty()) return;
    text += SymbolLiteral(symbols.front());
    symbols.remove_prefix(1);
  }
}

void SymbolReader::PushSpelled(std::string_view bytes, std::string& symbols) {
  ScanLiterals(repairer_.Push(bytes), symbols);
}

void SymbolReader::Finish(std::string& symbols) {
  ScanLiterals(repairer_.Flush(), symbols);
  symbols += std::exchange(literal_, {});
}

void SymbolReader::ScanLiterals(std::string_view text, std::string& symbols) {
  for (const char byte : text) {
    // A literal begins anew only at `<`, which none holds inside.
    if (byte == '<') {
      symbols += literal_;
      literal_ = byte;
      continue;
    }
    if (literal_.empty()) {
      symbols += byte;
      continue;
    }
    literal_ += byte;
    const auto match =
        std::ranges::find_if(kScanned, [&](const Literal& l) { return l.text.starts_with(literal_); });
    if (match == kScanned.end()) {
      symbols += std::exchange(literal_, {});
    } else if (match->text.size() == literal_.size()) {
      symbols += match->symbol;
      literal_.clear();
    }
  }
}

}  // namespace millrace::text
