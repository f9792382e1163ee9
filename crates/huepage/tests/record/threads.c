/* Two threads, each adding one to 4096 words of its own 100 times; ends with status 7. */
#include <pthread.h>
static volatile long words[2][4096];
static void *work(void *mine) {
    volatile long *w = mine;
    for (int round = 0; round < 100; round++)
        for (int i = 0; i < 4096; i++) w[i]++;
    return 0;
}
int main(void) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, work, (void *)words[i]);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    return words[0][5] == 100 && words[1][7] == 100 ? 7 : 1;
}
