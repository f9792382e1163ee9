/* Three children that write to 4096 words 50 times: one exits, one executes `true`, and one
   kills itself with what it recorded unpublished. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile long words[4096];
static void child(int number) {
    for (int round = 0; round < 50; round++)
        for (int i = 0; i < 4096; i++) words[i] = round + number;
    if (number == 1) execlp("true", "true", (char *)0);
    if (number == 2) kill(getpid(), SIGKILL);
    _exit(0);
}
int main(void) {
    int status, killed = 0;
    for (int i = 0; i < 3; i++)
        if (fork() == 0) child(i);
    while (wait(&status) > 0) killed += WIFSIGNALED(status);
    return killed == 1 && words[0] == 0 ? 0 : 1;
}
