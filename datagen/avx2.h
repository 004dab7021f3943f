// Says whether functions for processors with AVX2 are compiled; the program checks for such a processor when it runs.
#pragma once

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define AUTOMAP_DATAGEN_AVX2 1
#else
#define AUTOMAP_DATAGEN_AVX2 0
#endif
