"""The C++ of a float32 matrix product by the method of Goto and van de Geijn (2008); other kernels use its parts.

A panel of the right matrix, as wide as a register tile of the result, is packed once for all rows of the left matrix,
which is read in place. The sums of a tile stay in registers. Each is a chain of at most DEPTH terms; the chains are
then added in a fixed order, so results do not depend on the number of threads or of rows.
"""
from __future__ import annotations

ENTRY = "ptdebug_product"

TILES = """\
#pragma GCC optimize ("fp-contract=fast")
typedef int int32;
typedef long int64;
#define INLINE static inline __attribute__((always_inline))
extern "C" {
void* aligned_alloc(unsigned long, unsigned long);
void free(void*);
float expf(float);
float logf(float);
int omp_get_max_threads();
}
#if defined(__AVX512F__)
enum { LANES = 16, WIDE = 4 };  // of a vector, and vectors of a tile: 24 of the 32 registers hold its sums
#elif defined(__AVX2__)
enum { LANES = 8, WIDE = 2 };
#else
enum { LANES = 4, WIDE = 2 };
#endif
static const int64 HIGH = 6, PANEL = WIDE * LANES;  // rows and columns of a tile
typedef float lanes __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32 wholes __attribute__((vector_size(4 * LANES)));
INLINE lanes* at(float* x) { return (lanes*)x; }
INLINE const lanes* at(const float* x) { return (const lanes*)x; }
INLINE lanes all(float x) { return lanes{} + x; }
template <int... K> struct Numbers {
  template <typename F> static constexpr wholes of(F number) { return wholes{number(K)...}; }
};
template <int COUNT, typename F> constexpr wholes numbers(F number) {
  return Numbers<__integer_pack(COUNT)...>::of(number);
}
INLINE int64 least(int64 a, int64 b) { return a < b ? a : b; }
INLINE int64 in_steps(int64 count, int64 step) { return (count + step - 1) / step; }

// A tile of a product: ROWS rows of `left` by a panel, which has COLUMNS vectors for each of `depth` terms.
template <int ROWS, int COLUMNS> static void tile(const float* left, int64 row, const float* panel, int64 depth,
                                                  float* out, int64 out_row, bool add) {
  lanes sums[ROWS][COLUMNS];
  #pragma GCC unroll 8
  for (int i = 0; i < ROWS; i++)
    #pragma GCC unroll 8
    for (int j = 0; j < COLUMNS; j++) sums[i][j] = lanes{};
  for (int64 d = 0; d < depth; d++, panel += COLUMNS * LANES) {
    #pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++)
      #pragma GCC unroll 8
      for (int j = 0; j < COLUMNS; j++) sums[i][j] += *at(panel + j * LANES) * left[i * row + d];
  }
  #pragma GCC unroll 8
  for (int i = 0; i < ROWS; i++)
    #pragma GCC unroll 8
    for (int j = 0; j < COLUMNS; j++) {
      lanes* to = at(out + i * out_row + j * LANES);
      *to = add ? *to + sums[i][j] : sums[i][j];
    }
}
typedef void (*Tile)(const float*, int64, const float*, int64, float*, int64, bool);
template <int COLUMNS> struct Tiles {
  static constexpr Tile of[] = {tile<1, COLUMNS>, tile<2, COLUMNS>, tile<3, COLUMNS>, tile<4, COLUMNS>,
                                tile<5, COLUMNS>, tile<6, COLUMNS>};
};
static const Tile* const TILES[] = {Tiles<1>::of, Tiles<2>::of, Tiles<WIDE - 1>::of, Tiles<WIDE>::of};
static const int64 DEPTH = 128;  // of terms that are added up in one go: rounding errors grow with it

// A product of up to HIGH rows and up to WIDE vectors of columns, of as many terms as there are.
static void product(int64 rows, int64 columns, const float* left, int64 row, const float* panel, int64 depth,
                    float* out, int64 out_row, bool add) {
  const Tile tile = TILES[columns - 1][rows - 1];
  int64 d = 0;
  do {  // of no terms, zeros
    tile(left + d, row, panel + d * columns * LANES, least(DEPTH, depth - d), out, out_row, add || d);
    d += DEPTH;
  } while (d < depth);
}
"""

PACKING = """\
// to[wide * i + j] = from[row * j + i] for as many i and j as a vector has lanes: blocks change places, then their
// blocks (Eklundh, 1972). Rows after `last` are that row again.
template <int HALF> INLINE void exchange(lanes* a) {
  constexpr wholes low = numbers<LANES>([](int k) { return k & HALF ? LANES + k - HALF : k; });
  constexpr wholes high = numbers<LANES>([](int k) { return k & HALF ? LANES + k : k + HALF; });
  #pragma GCC unroll 16
  for (int k = 0; k < LANES; k++) {
    if (k & HALF) continue;
    const lanes x = a[k], y = a[k + HALF];
    a[k] = __builtin_shuffle(x, y, low);
    a[k + HALF] = __builtin_shuffle(x, y, high);
  }
  if constexpr (2 * HALF < LANES) exchange<2 * HALF>(a);
}
static void transpose(const float* from, int64 row, int64 last, float* to, int64 wide) {
  lanes a[LANES];
  #pragma GCC unroll 16
  for (int k = 0; k < LANES; k++) a[k] = *at(from + least(k, last) * row);
  exchange<1>(a);
  #pragma GCC unroll 16
  for (int k = 0; k < LANES; k++) *at(to + k * wide) = a[k];
}

// Panels of the transpose of `count` rows of `size`, whose columns after the last row hold anything.
static void pack_turned(const float* rows, int64 row, int64 count, int64 size, float* to) {
  for (int64 p = 0; p < count; p += PANEL) {
    const int64 wide = in_steps(least(PANEL, count - p), LANES) * LANES;
    for (int64 j = 0; j < wide; j += LANES) {
      const float* from = rows + (p + j) * row;
      const int64 last = least(LANES, count - p - j) - 1;
      for (int64 d = 0; d < size && size >= LANES; d += LANES) {
        const int64 first = least(d, size - LANES);
        transpose(from + first, row, last, to + first * wide + j, wide);
      }
      for (int64 d = 0; d < size && size < LANES; d++)
        for (int64 k = 0; k < LANES; k++) to[d * wide + j + k] = from[least(k, last) * row + d];
    }
    to += size * wide;
  }
}

// Panels of `count` rows of `size` as they are, with zeros after the last column; whether all are finite.
static bool pack_straight(const float* rows, int64 row, int64 count, int64 size, float* to) {
  lanes sum = {};
  for (int64 p = 0; p < size; p += PANEL) {
    const int64 there = least(PANEL, size - p), wide = in_steps(there, LANES) * LANES;
    for (int64 j = 0; j < count; j++)
      for (int64 k = 0; k < wide; k += LANES, to += LANES) {
        const float* from = rows + j * row + p + k;
        lanes x = {};
        if (k + LANES <= there) x = *at(from);
        else __builtin_memcpy(&x, from, 4 * (there - k));
        __builtin_prefetch(from + 8 * row);
        *at(to) = x;
        sum += x * 0.0f;
      }
  }
  bool finite = true;
  for (int k = 0; k < LANES; k++) finite &= sum[k] == 0.0f;
  return finite;
}
"""

PRODUCT = """\
struct Task {  // sizes, and strides in elements: by rows or by columns
  int64 rows, columns, depth;
  int64 left[2], right[2];
};
static const int64 BLOCK = 512;  // terms whose part of a panel stays in the second-level cache
static const int64 PACKED = 1 << 15;  // floats of panels that do, all of which rows of the left matrix meet in turn
static const int64 MANY = 8 * HIGH;  // rows that stay in the first-level cache, or near it
static const int64 SMALL = 1 << 20;  // multiplications; fewer are done before a thread has woken up

static void pack(const Task& t, const float* right, int64 first, float* panel) {
  const int64 there = least(PANEL, t.columns - first);
  if (t.right[0] == 1) pack_turned(right + first * t.right[1], t.right[1], there, t.depth, panel);
  else pack_straight(right + first, t.right[0], t.depth, there, panel);
}

// Rows [i, i + LANES) of a left matrix that lies by columns, by rows as long as `wide`.
static void turn(const Task& t, const float* left, int64 i, float* to, int64 wide) {
  const int64 step = t.left[1];
  if (t.rows >= LANES) {
    i = least(i, t.rows - LANES);
    for (int64 d = 0; d < t.depth; d += LANES)
      transpose(left + d * step + i, step, least(LANES, t.depth - d) - 1, to + i * wide + d, wide);
  } else {
    for (int64 r = 0; r < t.rows; r++)
      for (int64 d = 0; d < t.depth; d++) to[r * wide + d] = left[d * step + r];
  }
}

// The columns of one panel, in the rows [start, end), as the sum of blocks of terms.
struct Columns {
  const Task& t;
  const float *left, *bias, *panel;
  float* out;
  int64 row, first, start, end;  // `row` is the left matrix' stride

  void run() const {
    const int64 there = least(PANEL, t.columns - first), count = in_steps(there, LANES);
    for (int64 d = 0; d < t.depth; d += BLOCK)
      for (int64 i = start; i < end; i += HIGH) {
        const int64 high = least(HIGH, end - i);
        float* to = out + i * t.columns + first;
        for (int64 r = HIGH; d == 0 && r < least(2 * HIGH, end - i); r++)  // the next tile's
          for (int64 j = 0; j < there; j += LANES) __builtin_prefetch(to + r * t.columns + j, 1);
        if (bias && d == 0)
          for (int64 r = 0; r < high; r++) __builtin_memcpy(to + r * t.columns, bias + first, 4 * there);
        const bool add = bias || d;
        const float *rows = left + i * row + d, *terms = panel + d * count * LANES;
        const int64 depth = least(BLOCK, t.depth - d);
        if (there == count * LANES) product(high, count, rows, row, terms, depth, to, t.columns, add);
        else edge(high, count, there, rows, terms, depth, to, add);
      }
  }
  // The same where the last vector of a row would reach beyond the last column.
  void edge(int64 high, int64 count, int64 there, const float* rows, const float* terms, int64 depth, float* to,
            bool add) const {
    float sums[HIGH * PANEL];
    product(high, count, rows, row, terms, depth, sums, PANEL, false);
    for (int64 r = 0; r < high; r++)
      for (int64 j = 0; j < there; j++) {
        float& x = to[r * t.columns + j];
        x = add ? x + sums[r * PANEL + j] : sums[r * PANEL + j];
      }
  }
};

static float* memory(int64 floats) { return (float*)aligned_alloc(64, in_steps(4 * floats, 64) * 64); }

extern "C" __attribute__((visibility("default")))
int ptdebug_product(const int64* task, const void* left, const void* right, const void* bias, void* out) {
  const Task& t = *(const Task*)task;
  if (t.rows == 0) return 0;  // where their number varies
  const bool shared = t.rows * t.columns * t.depth > SMALL, turned = t.left[1] != 1;
  const int64 wide = in_steps(t.depth, LANES) * LANES, panel = wide * PANEL;
  const int64 panels = in_steps(t.columns, PANEL);
  int64 group = least(panels, PACKED > panel ? PACKED / panel : 1);
  while (shared && panels % group) group--;  // threads share them evenly
  const int64 step = in_steps(in_steps(t.rows, shared ? omp_get_max_threads() : 1), HIGH) * HIGH;
  const int64 pieces = in_steps(t.rows, step);  // of the rows: then no thread waits for the last panel of another
  float* rows = turned ? memory(in_steps(t.rows, LANES) * LANES * wide) : (float*)left;
  int failed = !rows;
  if (failed) return failed;
  #pragma omp parallel if (shared) reduction(|:failed)
  {
    float* packed = memory(group * panel);
    failed = !packed;
    if (turned) {
      #pragma omp for schedule(static)
      for (int64 i = 0; i < t.rows; i += LANES) turn(t, (const float*)left, i, rows, wide);
    }
    int64 last = -1;
    #pragma omp for schedule(static)
    for (int64 piece = 0; piece < in_steps(panels, group) * pieces; piece++) {
      const int64 first = piece / pieces * group, after = least(first + group, panels);
      const int64 start = piece % pieces * step, end = least(start + step, t.rows);
      if (!packed) continue;
      for (int64 p = first; p < after && first != last; p++)
        pack(t, (const float*)right, p * PANEL, packed + (p - first) * panel);
      last = first;
      for (int64 i = start; i < end; i += MANY)
        for (int64 p = first; p < after; p++)
          Columns{t, rows, (const float*)bias, packed + (p - first) * panel, (float*)out, turned ? wide : t.left[0],
                  p * PANEL, i, least(i + MANY, end)}.run();
    }
    free(packed);
  }
  if (turned) free(rows);
  return failed;
}
"""

SOURCE = "\n".join((TILES, PACKING, PRODUCT))
