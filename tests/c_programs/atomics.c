// Every atomic operation on one word and on two, in memory, in LDS and through generic pointers, with and without the
// value that was there. Every lane has words of its own, so that numpy can say each result.

#define HERE (GROUP * ITEMS + ITEM)
#define RELAXED __ATOMIC_RELAXED
#define OPERATIONS(T, S, PLACE, VALUE, INC, DEC, DO) \
  DO(0, __atomic_fetch_add(PLACE(0), VALUE, RELAXED)) DO(1, __atomic_fetch_sub(PLACE(1), VALUE, RELAXED)) \
  DO(2, __atomic_fetch_and(PLACE(2), VALUE, RELAXED)) DO(3, __atomic_fetch_or(PLACE(3), VALUE, RELAXED)) \
  DO(4, __atomic_fetch_xor(PLACE(4), VALUE, RELAXED)) DO(5, __atomic_exchange_n(PLACE(5), VALUE, RELAXED)) \
  DO(6, __atomic_fetch_min(PLACE(6), VALUE, RELAXED)) DO(7, __atomic_fetch_max(PLACE(7), VALUE, RELAXED)) \
  DO(8, (T)__atomic_fetch_min((S)PLACE(8), (typeof(*(S)0))VALUE, RELAXED)) \
  DO(9, (T)__atomic_fetch_max((S)PLACE(9), (typeof(*(S)0))VALUE, RELAXED)) \
  DO(10, __builtin_amdgcn_atomic_##INC(PLACE(10), VALUE, RELAXED, "workgroup")) \
  DO(11, __builtin_amdgcn_atomic_##DEC(PLACE(11), VALUE, RELAXED, "workgroup"))

#define GIVEN(row, operation) old[(row) * count + i] = operation;
#define NOT_GIVEN(row, operation) (void)operation;
#define START(T) u32 i = HERE; T x = in[i], y = in[count + i]

#define IN_MEMORY(row) (words + (row) * count + i)
#define MEMORY(name, T, S, INC, DEC, DO) \
  KERNEL name(GLOBAL const T *in, GLOBAL T *words, GLOBAL T *old, u32 count) { \
    START(T); (void)y; OPERATIONS(T, GLOBAL S *, IN_MEMORY, x, INC, DEC, DO) \
    T expected = x & 1 ? y : x; __atomic_compare_exchange_n(IN_MEMORY(12), &expected, (T)(x * 3), 0, RELAXED, RELAXED); \
    DO(12, expected) }
MEMORY(memory_word, u32, i32, inc32, dec32, GIVEN)
MEMORY(memory_word_quiet, u32, i32, inc32, dec32, NOT_GIVEN)
MEMORY(memory_wide, u64, i64, inc64, dec64, GIVEN)
MEMORY(memory_wide_quiet, u64, i64, inc64, dec64, NOT_GIVEN)

#define IN_GENERIC(row) ((T *)place + (row))
#define GENERIC_KERNEL(name, TYPE, S, INC, DEC, DO) \
  KERNEL name(GLOBAL const TYPE *in, GLOBAL TYPE *words, GLOBAL TYPE *old, u32 count) { \
    START(TYPE); typedef TYPE T; static LDS TYPE shared[64 * 13] __attribute__((loader_uninitialized)); \
    T *place = i & 1 ? (T *)(shared + ITEM * 13) : (T *)(words + i * 13); \
    for (u32 k = 0; k < 13; k++) place[k] = y; \
    OPERATIONS(T, S *, IN_GENERIC, x, INC, DEC, DO) \
    T expected = x & 1 ? y : x; __atomic_compare_exchange_n(IN_GENERIC(12), &expected, (T)(x * 3), 0, RELAXED, RELAXED); \
    DO(12, expected) \
    if (i & 1) for (u32 k = 0; k < 13; k++) words[i * 13 + k] = place[k]; }
GENERIC_KERNEL(generic_word, u32, i32, inc32, dec32, GIVEN)
GENERIC_KERNEL(generic_word_quiet, u32, i32, inc32, dec32, NOT_GIVEN)
GENERIC_KERNEL(generic_wide, u64, i64, inc64, dec64, GIVEN)
GENERIC_KERNEL(generic_wide_quiet, u64, i64, inc64, dec64, NOT_GIVEN)

#define IN_LDS(row) (shared + ITEM * 13 + (row))
#define LDS_KERNEL(name, T, S, INC, DEC, DO) \
  KERNEL name(GLOBAL const T *in, GLOBAL T *words, GLOBAL T *old, u32 count) { \
    START(T); static LDS T shared[64 * 13] __attribute__((loader_uninitialized)); \
    for (u32 k = 0; k < 13; k++) *IN_LDS(k) = y; \
    OPERATIONS(T, LDS S *, IN_LDS, x, INC, DEC, DO) \
    T expected = x & 1 ? y : x; __atomic_compare_exchange_n(IN_LDS(12), &expected, (T)(x * 3), 0, RELAXED, RELAXED); \
    DO(12, expected) \
    for (u32 k = 0; k < 13; k++) words[i * 13 + k] = *IN_LDS(k); }
LDS_KERNEL(lds_word, u32, i32, inc32, dec32, GIVEN)
LDS_KERNEL(lds_word_quiet, u32, i32, inc32, dec32, NOT_GIVEN)
LDS_KERNEL(lds_wide, u64, i64, inc64, dec64, GIVEN)
LDS_KERNEL(lds_wide_quiet, u64, i64, inc64, dec64, NOT_GIVEN)
