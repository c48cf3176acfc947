/* The SPANK plugin: `srun --stasis`, `sbatch --stasis`, `salloc --stasis`.
 *
 * A line of plugstack.conf names it, and what a task runs in place of its program:
 *     required /usr/lib/slurm/stasis_spank.so /usr/bin/stasis-step
 * Slurm still does all that it does for a task (limits, binding, devices, its prolog); only the file that is
 * executed is another one, which finds the program's name and the option's value in the environment. Nothing
 * here runs for a step without the option. */
#define _GNU_SOURCE

// clang-format off
#include <stdint.h> /* spank.h uses its types without it */

#include <slurm/slurm.h>
#include <slurm/spank.h>
// clang-format on

#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

SPANK_PLUGIN(stasis, 1)

#define PROGRAM_VARIABLE "STASIS_STEP_PROGRAM"
#define OPTIONS_VARIABLE "STASIS_STEP_OPTIONS"

static char* wanted; /* the option's value; null: not given */

static int take_option(int value, const char* argument, int remote) {
  (void)value;
  (void)remote;
  free(wanted);
  /* How sbatch and salloc hand an argument on that was left out. */
  if (argument == NULL || strcmp(argument, "(null)") == 0) argument = "";
  wanted = strdup(argument);
  return wanted != NULL ? ESPANK_SUCCESS : -1;
}

static struct spank_option stasis_option = {
    (char *)"stasis", (char *)"[OPTION,...]",
    (char *)"run each task under Stasis: it can be paused and checkpointed, and goes on from its image when "
            "the job is requeued; `stasis-step --help` lists the options",
    2 /* the argument may be left out */, 0, take_option};

int slurm_spank_init(spank_t spank, int ac, char** av) {
  (void)ac;
  (void)av;
  if (spank_context() == S_CTX_JOB_SCRIPT) return ESPANK_SUCCESS; /* it takes no options */
  return spank_option_register(spank, &stasis_option);
}

/* Whether a word is among those of a list with commas. */
static int has_word(const char* list, const char* word) {
  size_t length = strlen(word);
  for (const char* at = list; at != NULL; at = strchr(at, ',')) {
    if (*at == ',') at++;
    if (strncmp(at, word, length) == 0 && (at[length] == 0 || at[length] == ',')) return 1;
  }
  return 0;
}

/* Whether on= is among the words, and HUP among its signals. */
static int asks_for_hangup(const char* list) {
  const char* on = strncmp(list, "on=", 3) == 0 ? list : strstr(list, ",on=");
  const char* found = on != NULL ? strstr(on, "HUP") : NULL;
  return found != NULL && memchr(on + 1, ',', (size_t)(found - on - 1)) == NULL;
}

/* Steps are what the option is for. The shell of a batch job is a task only by the word `batch`, and then the
 * steps that it starts belong to it. */
static int is_for_us(spank_t spank) {
  uint32_t step = 0;
  if (spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS) return 0;
  if (step == SLURM_BATCH_SCRIPT) return has_word(wanted, "batch");
  return step <= SLURM_MAX_NORMAL_STEP_ID && !has_word(wanted, "batch");
}

/* As it is looked for later: a name without a slash in the PATH of the task. */
static int can_be_executed(spank_t spank, const char* program) {
  char path[16384], file[PATH_MAX];
  if (strchr(program, '/') != NULL) return access(program, X_OK) == 0;
  if (spank_getenv(spank, "PATH", path, sizeof path) != ESPANK_SUCCESS) return 0;
  for (char *rest = path, *folder; (folder = strsep(&rest, ":")) != NULL;) {
    int length = snprintf(file, sizeof file, "%s/%s", *folder != 0 ? folder : ".", program);
    if (length > 0 && (size_t)length < sizeof file && access(file, X_OK) == 0) return 1;
  }
  return 0;
}

/* A signal that comes before anybody could look for it would end a step that has not begun. Blocked, it waits, also
 * through stasis-step, for the command that it is meant for: these are the signals which that one takes. */
static int keep_signals(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGQUIT);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGUSR1);
  sigaddset(&set, SIGUSR2);
  if (asks_for_hangup(wanted)) sigaddset(&set, SIGHUP);
  return sigprocmask(SIG_BLOCK, &set, NULL);
}

static const char* step_program(int ac, char** av) { return ac > 0 ? av[0] : "/usr/bin/stasis-step"; }

int slurm_spank_task_init(spank_t spank, int ac, char** av) {
  int argc = 0;
  char** argv = NULL;
  const char* step = step_program(ac, av);
  if (wanted == NULL || !is_for_us(spank)) return ESPANK_SUCCESS;
  if (spank_get_item(spank, S_JOB_ARGV, &argc, &argv) != ESPANK_SUCCESS || argc < 1) return -1;
  if (access(step, X_OK) != 0) {
    slurm_error("--stasis: %s cannot be executed", step);
    return -1;
  }
  /* With --multi-prog this is the file that lists the programs, and what is changed here has no effect. */
  if (!can_be_executed(spank, argv[0])) {
    slurm_error("--stasis: %s is no program (--multi-prog does not go with --stasis)", argv[0]);
    return -1;
  }
  if (spank_setenv(spank, PROGRAM_VARIABLE, argv[0], 1) != ESPANK_SUCCESS ||
      spank_setenv(spank, OPTIONS_VARIABLE, wanted, 1) != ESPANK_SUCCESS)
    return -1;
  /* This is the task's own process; the array belongs to it and lasts until the program is executed. */
  argv[0] = strdup(step);
  return argv[0] != NULL && keep_signals() == 0 ? ESPANK_SUCCESS : -1;
}

/* In the child of a process that has threads: system calls only. */
static void end_as(uid_t uid, gid_t gid, const gid_t* groups, int count, const char* step, char** env) {
  char* argv[] = {(char*)step, (char*)"--end", NULL};
  if (geteuid() == 0 && (setgroups((size_t)count, groups) != 0 || setgid(gid) != 0 || setuid(uid) != 0))
    _exit(1);
  execve(step, argv, env);
  _exit(1);
}

/* The environment of the job, and with it what the task alone knew. */
static char** environment_of(spank_t spank) {
  char **env = NULL, **all;
  uint32_t rank = 0;
  size_t count = 0;
  if (spank_get_item(spank, S_JOB_ENV, &env) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_TASK_GLOBAL_ID, &rank) != ESPANK_SUCCESS)
    return NULL;
  while (env[count] != NULL) count++;
  all = calloc(count + 3, sizeof *all);
  if (all == NULL) return NULL;
  memcpy(all + 2, env, count * sizeof *all);
  if (asprintf(&all[0], OPTIONS_VARIABLE "=%s", wanted) < 0) all[0] = NULL;
  if (asprintf(&all[1], "SLURM_PROCID=%u", rank) < 0) all[1] = NULL;
  if (all[0] != NULL && all[1] != NULL) return all;
  free(all[0]);
  free(all[1]);
  free(all);
  return NULL;
}

/* What was killed could not end its task, and the task is no descendant of it that Slurm would find without
 * cgroups. */
int slurm_spank_task_exit(spank_t spank, int ac, char** av) {
  int status = 0, count = 0;
  uid_t uid;
  gid_t gid, *groups = NULL;
  char** env;
  pid_t child;
  if (wanted == NULL || !is_for_us(spank)) return ESPANK_SUCCESS;
  if (spank_get_item(spank, S_TASK_EXIT_STATUS, &status) != ESPANK_SUCCESS || !WIFSIGNALED(status))
    return ESPANK_SUCCESS;
  if (spank_get_item(spank, S_JOB_UID, &uid) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_JOB_GID, &gid) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_JOB_SUPPLEMENTARY_GIDS, &groups, &count) != ESPANK_SUCCESS)
    return ESPANK_SUCCESS;
  env = environment_of(spank);
  if (env == NULL) return ESPANK_SUCCESS;
  child = fork();
  if (child == 0) end_as(uid, gid, groups, count, step_program(ac, av), env);
  while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR) {
  }
  free(env[0]);
  free(env[1]);
  free(env);
  return ESPANK_SUCCESS;
}
