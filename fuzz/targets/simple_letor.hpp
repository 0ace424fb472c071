// A slow and simple reader of LETOR text, written line by line and word by word after the description of the format in
// docs/data.md: the result that the native reader must have.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace fuzz {

enum class Ids { none, numbers, names };

struct SimpleOptions {
    bool zero_based, limited, null_allowed;
    double null, largest;
    std::size_t columns;  // number of columns, if `limited`
};

struct SimpleRow {
    double label;
    std::string qid;                                         // digits without leading zeros, or a name
    std::vector<std::pair<std::uint64_t, double>> features;  // column and value
    std::string docid;
};

struct SimpleResult {
    std::vector<SimpleRow> rows;
    Ids ids = Ids::none;
    bool comments = false;
    std::uint64_t columns = 0;  // one more than the largest column
    bool fault = false;
    std::size_t line = 0;  // offset of the first line with a fault
};

inline bool digit(char c) {
    return c >= '0' && c <= '9';
}
inline bool letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Whether the whole text is [+-] digits [. digits] [e [+-] digits], with digits on one side of the point at least
inline bool is_number(const std::string& text) {
    std::size_t i = 0, digits = 0;
    auto sign = [&] { i += i < text.size() && (text[i] == '+' || text[i] == '-'); };
    auto run = [&] {
        const std::size_t from = i;
        while (i < text.size() && digit(text[i])) ++i;
        return i - from;
    };
    sign();
    digits = run();
    if (i < text.size() && text[i] == '.') {
        ++i;
        digits += run();
    }
    if (!digits) return false;
    if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
        ++i;
        sign();
        if (!run()) return false;
    }
    return i == text.size();
}

// The number in a text of digits, or false if it is above `most`
inline bool whole(const std::string& text, std::uint64_t most, std::uint64_t& value) {
    value = 0;
    for (char c : text) {
        const std::uint64_t d = std::uint64_t(c - '0');
        if (value > (most - d) / 10) return false;
        value = value * 10 + d;
    }
    return true;
}

inline bool all_digits(const std::string& text) {
    for (char c : text)
        if (!digit(c)) return false;
    return !text.empty();
}

inline std::vector<std::string> words_of(const std::string& text) {
    std::vector<std::string> words;
    for (std::size_t i = 0; i < text.size();) {
        if (text[i] == ' ' || text[i] == '\t') {
            ++i;
            continue;
        }
        std::size_t end = i;
        while (end < text.size() && text[end] != ' ' && text[end] != '\t') ++end;
        words.push_back(text.substr(i, end - i));
        i = end;
    }
    return words;
}

// The docid in a comment: the word after `docid =`, `docid:` or `docid`, or the first word
inline std::string docid_of(const std::string& comment) {
    auto blank = [](char c) { return static_cast<unsigned char>(c) <= ' '; };
    auto stripped = [&](std::string text) {
        std::size_t i = 0;
        while (i < text.size() && blank(text[i])) ++i;
        return text.substr(i);
    };
    auto first_word = [&](const std::string& text) {
        std::size_t i = 0;
        while (i < text.size() && !blank(text[i])) ++i;
        return text.substr(0, i);
    };
    std::size_t i = 0;
    while (i < comment.size() && (comment[i] == '#' || blank(comment[i]))) ++i;
    const std::string text = comment.substr(i), word = first_word(text);
    if (word.compare(0, 5, "docid") != 0) return word;
    std::string after = stripped(text.substr(5));
    const bool sign = !after.empty() && (after[0] == '=' || after[0] == ':');
    if (sign) after = stripped(after.substr(1));
    return sign || (word == "docid" && !after.empty()) ? first_word(after) : word;
}

// Whether a word is nan, in any case.
inline bool is_nan_word(const std::string& text) {
    return text.size() == 3 && std::string("nN").find(text[0]) < 2 && std::string("aA").find(text[1]) < 2 &&
           std::string("nN").find(text[2]) < 2;
}

// Reads the features among `words` from index `at` on. Returns whether they have no fault.
inline bool simple_features(const std::vector<std::string>& words, std::size_t at, const SimpleOptions& options,
                            SimpleRow& row) {
    for (; at < words.size(); ++at) {
        const std::size_t colon = words[at].find(':');
        if (colon == std::string::npos) return false;
        const std::string id = words[at].substr(0, colon), text = words[at].substr(colon + 1);
        std::uint64_t number;
        // the largest id is the largest that has a last digit of any value below 2^63
        if (!all_digits(id) || !whole(id, 9223372036854775799u, number)) return false;
        if (!options.zero_based && number == 0) return false;
        const std::uint64_t column = number - (options.zero_based ? 0 : 1);
        if (!row.features.empty() && column <= row.features.back().first) return false;
        if (options.limited && column >= options.columns) return false;
        double value;
        if (is_number(text))
            value = std::strtod(text.c_str(), nullptr);
        else if (options.null_allowed && (text == "NULL" || is_nan_word(text)))
            value = options.null;
        else
            return false;
        if (std::fabs(value) > options.largest) return false;
        row.features.emplace_back(column, value);
    }
    return true;
}

// Reads the words of a document. Returns whether they have no fault.
inline bool simple_document(const std::vector<std::string>& words, const SimpleOptions& options, Ids ids,
                            SimpleRow& row) {
    if (!is_number(words[0])) return false;
    row.label = std::strtod(words[0].c_str(), nullptr);
    if (row.label < 0 || row.label > 9007199254740992.0) return false;  // labels are at most 2^53
    std::size_t at = 1;
    const bool named = words.size() > 1 && words[1].compare(0, 4, "qid:") == 0;
    if (named != (ids != Ids::none)) return false;
    if (named) {
        row.qid = words[1].substr(4);
        if (row.qid.empty() || letter(row.qid[0]) != (ids == Ids::names)) return false;
        if (ids == Ids::names) {
            for (char c : row.qid)
                if (!letter(c) && !digit(c) && c != '.' && c != '_' && c != '-') return false;
        } else {
            std::uint64_t id;
            if (!all_digits(row.qid) || !whole(row.qid, 9223372036854775807u, id)) return false;
            row.qid = std::to_string(id);
        }
        ++at;
    }
    return simple_features(words, at, options, row);
}

inline SimpleResult simple_letor(const std::string& text, const SimpleOptions& options) {
    SimpleResult result;
    bool any = false;
    std::size_t at = text.compare(0, 3, "\xEF\xBB\xBF") == 0 ? 3 : 0;
    while (at < text.size() && !result.fault) {
        std::size_t newline = text.find('\n', at);
        if (newline == std::string::npos) newline = text.size();
        std::string line = text.substr(at, newline - at);
        while (!line.empty() && line.back() == '\r') line.pop_back();
        const std::size_t hash = line.find('#');
        const std::vector<std::string> words = words_of(line.substr(0, hash));
        const std::string comment = hash == std::string::npos ? "" : line.substr(hash);
        bool fine = comment.find('\r') == std::string::npos && comment.find('\0') == std::string::npos;
        if (!words.empty()) {
            if (!any && words.size() > 1 && words[1].compare(0, 4, "qid:") == 0)
                result.ids = words[1].size() > 4 && letter(words[1][4]) ? Ids::names : Ids::numbers;
            any = true;
            SimpleRow row;
            fine = simple_document(words, options, result.ids, row) && fine;
            row.docid = docid_of(comment);
            result.comments |= !comment.empty();
            if (!row.features.empty() && row.features.back().first >= result.columns)
                result.columns = row.features.back().first + 1;
            result.rows.push_back(row);
        }
        if (!fine) {
            result.fault = true;
            result.line = at;
        }
        at = newline + 1;
    }
    return result;
}

}  // namespace fuzz
