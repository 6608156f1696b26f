// The happens-before check. For every byte range: the last operation that wrote it, and those that have read it since, one for each
// stream. An operation that touches bytes must be ordered after the operations that conflict with it: its clock must have
// reached them. The check happens when work is submitted, since its order is fixed then: a race is found without an unlucky run.
#include "core.h"

namespace emu {

namespace {
struct Toucher {
  size_t stream = 0;
  u64 seq = 0;
  // The driver's number of the name, so that a segment stays small.
  u32 name = 0;
};

struct Segment {
  u64 hi = 0;
  bool written = false;
  Toucher writer;
  std::vector<Toucher> readers;
};

std::map<u64, Segment> segments;
std::vector<std::string> names{"nothing"};
std::map<std::string, u32> numbers;
const size_t racesKept = 100;

u32 numberOf(const std::string &name) {
  const auto found = numbers.find(name);
  if (found != numbers.end()) return found->second;
  names.push_back(name);
  return numbers[name] = (u32)names.size() - 1;
}

// Makes `at` a boundary between segments.
void split(u64 at) {
  auto next = segments.upper_bound(at);
  if (next == segments.begin()) return;
  auto below = std::prev(next);
  if (below->first == at || below->second.hi <= at) return;
  Segment upper = below->second;
  below->second.hi = at;
  segments.emplace(at, upper);
}

bool before(const Toucher &earlier, const Clock &clock) { return clock.get(earlier.stream) >= earlier.seq; }

std::string label(const Toucher &toucher) { return names[toucher.name]; }

void reportRace(const std::string &later, bool writes, const Toucher &earlier, bool wrote, u64 lo, u64 hi) {
  machine.racesFound++;
  if (machine.races.size() >= racesKept) return;
  char range[96];
  snprintf(range, sizeof range, " bytes [0x%llx, 0x%llx), %llu bytes: ", (unsigned long long)lo, (unsigned long long)hi,
           (unsigned long long)(hi - lo));
  machine.races.push_back(later + (writes ? " writes" : " reads") + range + label(earlier) +
                          (wrote ? " wrote" : " read") + " them, and nothing orders the two (" + describe(lo) + ")");
}
} // namespace

bool check(const Stream &stream, u64 seq, const Task &task, const Clock &clock) {
  if (task.accesses.empty()) return true;
  const std::string full = task.name + " on " + stream.label;
  const Toucher self{stream.id, seq, numberOf(full)};
  bool clean = true;
  for (const Access &access : task.accesses) {
    if (access.lo >= access.hi) continue;
    split(access.lo);
    split(access.hi);
    u64 at = access.lo;
    auto segment = segments.lower_bound(at);
    // One report for each conflicting operation, however many segments they share.
    std::set<std::pair<size_t, u64>> told;
    while (at < access.hi) {
      if (segment == segments.end() || segment->first > at) {
        const u64 end = segment == segments.end() ? access.hi : std::min(access.hi, segment->first);
        Segment fresh;
        fresh.hi = end;
        segment = segments.emplace(at, fresh).first;
      }
      Segment &here = segment->second;
      auto conflict = [&](const Toucher &earlier, bool wrote) {
        if ((earlier.stream == self.stream && earlier.seq == self.seq) || before(earlier, clock)) return;
        clean = false;
        if (told.insert({earlier.stream, earlier.seq}).second)
          reportRace(full, access.write, earlier, wrote, segment->first, here.hi);
      };
      if (here.written) conflict(here.writer, true);
      if (access.write) {
        for (const Toucher &reader : here.readers) conflict(reader, false);
        here.readers.clear();
        here.written = true;
        here.writer = self;
      } else {
        bool known = false;
        for (Toucher &reader : here.readers)
          if (reader.stream == self.stream) {
            reader = self;
            known = true;
          }
        if (!known) here.readers.push_back(self);
      }
      at = here.hi;
      segment++;
    }
    if (access.write) {
      // A range that was written as a whole is one segment again, so regular work keeps the map small.
      auto first = segments.find(access.lo);
      if (first != segments.end() && first->second.hi < access.hi) {
        first->second.hi = access.hi;
        segments.erase(std::next(first), segments.lower_bound(access.hi));
      }
    }
  }
  return clean;
}

void forgetAccesses(u64 lo, u64 hi) {
  split(lo);
  split(hi);
  segments.erase(segments.lower_bound(lo), segments.lower_bound(hi));
}

bool inUse(u64 lo, u64 hi, std::string &what) {
  split(lo);
  split(hi);
  for (auto segment = segments.lower_bound(lo); segment != segments.end() && segment->first < hi; segment++) {
    const Segment &here = segment->second;
    if (here.written && !before(here.writer, machine.host)) {
      what = label(here.writer);
      return true;
    }
    for (const Toucher &reader : here.readers)
      if (!before(reader, machine.host)) {
        what = label(reader);
        return true;
      }
  }
  return false;
}

} // namespace emu
