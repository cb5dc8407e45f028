"""The C++ of attention in float32: FlashAttention (Dao et al., 2022), with its own matrix products.

A block of keys and values is packed once for many queries (keys transposed) in panels as wide as a register tile, so
that scores and weighted values are products by the same microkernel (`sgemm_template.py`). The softmax of a row is
computed online, block by block. Blocks above a causal diagonal are skipped, and so is the end of a row that a mask of
-infinity, or of the lowest number, hides.
"""
from __future__ import annotations

from .sgemm_template import PACKING, TILES

ENTRY = "ptdebug_attention"

SOFTMAX = """\
template <int HALF = LANES / 2, typename F> INLINE float joined(lanes x, F join) {  // all lanes, by halves
  constexpr wholes other = numbers<LANES>([](int k) { return k ^ HALF; });
  x = join(x, __builtin_shuffle(x, other));
  if constexpr (HALF > 1) return joined<HALF / 2>(x, join);
  return x[0];
}
INLINE lanes larger(lanes a, lanes b) { return a > b ? a : b; }
static const float NONE = -__builtin_inff(), LOWEST = -0x1.fffffep127f, HIDDEN = -1e38f;

// Whether all numbers of some rows are below 2^52: products of two such rows of up to 2^8 are below 2^112.
static bool moderate(const float* from, int64 row, int64 rows, int64 size) {
  lanes sum = {};
  float rest = 0.0f;
  for (int64 i = 0; i < rows; i++, from += row) {  // an infinity or a NaN times 0 is NaN
    for (int64 d = 0; d + LANES <= size; d += LANES) sum += *at(from + d) * 0x1p76f * 0.0f;
    for (int64 d = size / LANES * LANES; d < size; d++) rest += from[d] * 0x1p76f * 0.0f;
  }
  return rest == 0.0f && joined(sum == 0.0f ? lanes{} : all(1.0f), larger) == 0.0f;
}
// Where what a row's mask hides to its end begins, in whole vectors: numbers up to `none`.
INLINE int64 before_masked(const float* mask, int64 end, float none) {
  while (end % LANES && mask[end - 1] <= none) end--;
  if (end % LANES) return end;
  while (end && joined(*at(mask + end - LANES) <= none ? lanes{} : all(1.0f), larger) == 0.0f) end -= LANES;
  return end;
}
INLINE bool shows(const float* mask, int64 end) {  // whether a score before `end` is far above the lowest number
  for (int64 k = end - least(end, LANES); k < end; k++)
    if (mask[k] > HIDDEN) return true;
  return false;
}

static const float LEAST = -87.336545f;  // whose exponential is the least normal number
INLINE lanes exp_lanes(lanes x) {  // of no number above 0; 0 below LEAST (the polynomial is float_math.py's)
  const lanes low = x < LEAST ? all(LEAST) : x;
  const lanes j = low * 1.442695041f + 12582912.0f, n = j - 12582912.0f;
  const lanes f = n * -1.42860677e-6f + (n * -0.693145752f + low);
  lanes p = f * 1.37805939e-3f + 8.37312452e-3f;
  p = p * f + 4.16695364e-2f;
  p = p * f + 1.66664720e-1f;
  p = p * f + 4.99999851e-1f;
  p = p * f + 1.0f;
  p = p * f + 1.0f;
  const lanes y = p * (lanes)(((wholes)j + 127) << 23);  // a product: NaN stays
  return x < LEAST ? lanes{} : y;
}

static __attribute__((noinline)) lanes gathered(const float* from, int64 step, int64 count) {
  float x[LANES] = {};
  for (int64 k = 0; k < count; k++) x[k] = from[k * step];
  return *at(x);
}
INLINE lanes scaled(lanes scores, float scale, const float* mask, int64 step, int64 first, int64 count) {
  const lanes x = scores * scale;
  if (!mask) return x;
  return x + (step == 1 && count == LANES ? *at(mask + first) : gathered(mask + first * step, step, count));
}

// What is known of a row after some of its keys: the largest score, and the sum of the exponentials of the others less
// this one. A row without any score above -infinity has the sum 0, one with a NaN keeps it.
struct Row { float most, sum; int64 end; };  // `end` of the keys that it sees, in the block at hand

// The softmax of a row's scores, but for the division by the sum; by how much what came before it has to shrink.
// With `few`, a row that has no score but NaN counts as one without any, as in ATen's kernel.
static float softmax(float* scores, int64 count, float scale, const float* mask, int64 step, bool few, Row& row) {
  const int64 whole = count / LANES * LANES;
  lanes top = all(NONE);
  for (int64 k = 0; k < whole; k += LANES)
    top = larger(*at(scores + k) = scaled(*at(scores + k), scale, mask, step, k, LANES), top);
  if (whole < count) {
    constexpr wholes lane = numbers<LANES>([](int k) { return k; });
    lanes& rest = *at(scores + whole);
    rest = lane < (int32)(count - whole) ? scaled(rest, scale, mask, step, whole, count - whole) : all(NONE);
    top = larger(rest, top);
  }
  const float here = joined(top, larger), most = row.most > here ? row.most : here;
  const float zero = most == NONE ? 0.0f : most;
  if (few && most == NONE) {
    for (int64 k = 0; k < count; k++) scores[k] = 0.0f;
    return 1.0f;
  }
  lanes sum = {};
  for (int64 k = 0; k < count; k += LANES) sum += *at(scores + k) = exp_lanes(*at(scores + k) - zero);
  const float shrunk = row.most == NONE ? 0.0f : expf(row.most - zero);
  row.sum = joined(sum, [](lanes a, lanes b) { return a + b; }) + shrunk * row.sum;
  row.most = most;
  return shrunk;
}
"""

ATTENTION = """\
struct Task {  // sizes, and strides in elements: of batch, head and row; the mask's also of its columns
  int64 batch, heads, queries, keys, size, causal;
  int64 query[3], key[3], value[3], mask[4], out[3], logs[3];
};
static const int64 KEYS = 512;  // of a block: what is packed of it stays in the second-level cache
static const int64 QUERIES = 8 * HIGH, MOST_QUERIES = 10 * QUERIES;  // of a block, and of all that share packed keys
static const int64 FEW = LANES < 8 ? 8 : LANES;  // keys less than a vector of ATen's
static const int64 SMALL = 1 << 18;  // multiplications; fewer are done before a thread has woken up

// The queries [first, last) of one head. `keys`, `values`, `scores` and `results` are memory for packed keys and
// values, the scores of a block of queries, and what all rows have summed up.
struct Part {
  const Task& t;
  const float *query, *key, *value, *mask;
  float *out, *logs, scale;
  int64 first, last;
  float *keys, *values, *scores, *results;
  Row* rows;
  int64 start, count, wide;  // the block of keys, and the length of a row of scores
  bool finite, tame;  // its values; and whether what a mask hides may be left out: no score there is infinite

  // After the last key that a row sees: below the diagonal, and before the mask is -infinity to the end. Where a row
  // sees anything, the lowest number hides as well: with scores below 2^119 added, its exponential is 0.
  int64 end(int64 row) const {
    int64 seen = t.causal ? least(row + 1 - start, count) : count;
    if (tame) {
      const float* line = mask + row * t.mask[2] + start;
      int64 shown = before_masked(line, count, LOWEST);
      if (!shows(line, shown) && rows[row - first].most <= HIDDEN) shown = before_masked(line, count, NONE);
      if (shown < seen && moderate(query + row * t.query[2], t.query[2], 1, t.size)) seen = shown;
    }
    return seen > 0 ? seen : 0;
  }
  int64 furthest(int64 row, int64 after) const {  // of the rows of a tile
    int64 end = 0;
    for (int64 i = row; i < after; i++) end = rows[i - first].end > end ? rows[i - first].end : end;
    return end;
  }
  int64 padded() const { return in_steps(t.size, LANES) * LANES; }
  float* result(int64 row) const { return results + (row - first) * padded(); }

  void run() {
    for (int64 row = first; row < last; row++) rows[row - first] = {NONE, 0.0f, 0};
    const int64 seen = t.causal ? least(t.keys, last) : t.keys;
    for (start = 0; start < seen; start += KEYS) {
      count = least(KEYS, t.keys - start);
      pack_turned(key + start * t.key[2], t.key[2], count, t.size, keys);
      finite = pack_straight(value + start * t.value[2], t.value[2], count, t.size, values);
      tame = mask && t.mask[3] == 1 && scale < 0x1p7f && moderate(key + start * t.key[2], t.key[2], count, t.size);
      for (int64 row = first; row < last; row++) rows[row - first].end = end(row);
      for (int64 row = first; row < last; row += QUERIES) {
        const int64 after = least(row + QUERIES, last);
        if (t.causal && after <= start) continue;
        multiply(row, after);
        for (int64 i = row; i < after; i++) weigh(i, after);
        add(row, after);
        if (start + KEYS >= (t.causal ? least(t.keys, after) : t.keys)) finish(row, after);
      }
    }
  }
  void multiply(int64 row, int64 after) const {  // the scores
    for (int64 p = 0; p < count; p += PANEL) {
      const int64 columns = in_steps(least(PANEL, count - p), LANES);
      for (int64 i = row; i < after; i += HIGH) {
        const int64 high = least(HIGH, after - i);
        if (p < furthest(i, i + high))
          product(high, columns, query + i * t.query[2], t.query[2], keys + p * t.size, t.size,
                  scores + (i - row) * wide + p, wide, false);
      }
    }
  }
  int64 reach(int64 row, int64 after) const {  // keys that the rows of a tile are multiplied with
    return finite ? furthest(row, least(row + HIGH, after)) : count;  // zero times infinity is NaN, as where all are
  }
  void weigh(int64 row, int64 after) const {  // a row of scores becomes weights, zero beyond the diagonal
    const int64 top = (row - first) / QUERIES * QUERIES + first, tile_row = top + (row - top) / HIGH * HIGH;
    float* line = scores + (row - top) * wide;
    const float* added = mask ? mask + row * t.mask[2] + start * t.mask[3] : nullptr;
    Row& known = rows[row - first];
    const float shrunk = softmax(line, known.end, scale, added, t.mask[3], count < FEW && !mask, known);
    for (int64 k = known.end; k < reach(tile_row, after); k++) line[k] = 0.0f;
    for (int64 d = 0; start && shrunk != 1.0f && d < padded(); d += LANES) *at(result(row) + d) *= shrunk;
  }
  void add(int64 row, int64 after) const {  // the weighted values
    for (int64 p = 0; p < t.size; p += PANEL) {
      const int64 columns = in_steps(least(PANEL, t.size - p), LANES);
      for (int64 i = row; i < after; i += HIGH)
        product(least(HIGH, after - i), columns, scores + (i - row) * wide, wide, values + p * count, reach(i, after),
                result(i) + p, padded(), start > 0);
    }
  }
  void finish(int64 row, int64 after) const {
    for (int64 i = row; i < after; i++) {
      const Row& known = rows[i - first];
      const float sum = known.sum == 0.0f ? 1.0f : known.sum, by = 1.0f / sum;
      float* to = out + i * t.out[2];
      const int64 whole = t.size / LANES * LANES;
      for (int64 d = 0; d < whole; d += LANES) *at(to + d) = *at(result(i) + d) * by;
      for (int64 d = whole; d < t.size; d++) to[d] = result(i)[d] * by;
      if (logs) logs[i * t.logs[2]] = (known.most == NONE ? 0.0f : known.most) + logf(sum);
    }
  }
};

extern "C" __attribute__((visibility("default")))
int ptdebug_attention(const int64* task, const void* query, const void* key, const void* value, const void* mask,
                      void* out, void* logs, double scale) {
  const Task& t = *(const Task*)task;
  const int64 heads = t.batch * t.heads, threads = omp_get_max_threads();
  if (heads * t.queries == 0) return 0;
  const bool shared = heads * t.queries * t.keys * t.size > SMALL;
  const int64 parts = shared ? in_steps(threads, heads) : 1;  // of a head's queries, at least
  const int64 rows = least(MOST_QUERIES, in_steps(in_steps(t.queries, parts), HIGH) * HIGH);
  const int64 pieces = in_steps(t.queries, rows), wide = least(KEYS, in_steps(t.keys, LANES) * LANES);
  const int64 padded = in_steps(t.size, LANES) * LANES;
  const int64 floats = wide * t.size + wide * padded + QUERIES * wide + rows * padded + 4 * rows;
  int failed = 0;
  #pragma omp parallel if (shared) reduction(|:failed)
  {
    float* memory = (float*)aligned_alloc(64, in_steps(4 * floats, 64) * 64);
    failed = !memory;
    #pragma omp for schedule(dynamic)
    for (int64 piece = 0; piece < heads * pieces; piece++) {
      if (!memory) continue;
      const int64 head = piece / pieces, b = head / t.heads, h = head % t.heads, first = piece % pieces * rows;
      float *values = memory + wide * t.size, *scores = values + wide * padded, *results = scores + QUERIES * wide;
      auto moved = [&](const void* from, const int64* strides) {
        return from ? (float*)from + b * strides[0] + h * strides[1] : nullptr;
      };
      Part{t, moved(query, t.query), moved(key, t.key), moved(value, t.value), moved(mask, t.mask),
           moved(out, t.out), moved(logs, t.logs), (float)scale, first, least(first + rows, t.queries),
           memory, values, scores, results, (Row*)(results + rows * padded), 0, 0, wide, true}.run();
    }
    free(memory);
  }
  return failed;
}
"""

SOURCE = "\n".join((TILES, PACKING, SOFTMAX, ATTENTION))
