#include <belay/runtime.h>
#include <stdio.h>

int main(void) {
  const belay_str version = belay_version();
  printf("belay %.*s\n", (int)version.len, version.ptr);
  return 0;
}
