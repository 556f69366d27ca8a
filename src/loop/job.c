/* Workers share one queue under one lock. A finished job goes to a second list
 * and the loop is woken once for all that gathered there meanwhile, so a burst
 * of small jobs costs one wake-up. */
#include "loop/job.h"
#include "base/buf.h"
#include "base/list.h"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

struct job {
    struct list node;
    struct jobs *pool;
    void (*work)(void *), (*done)(void *);
    void *arg;
};
struct jobs {
    struct loop *loop;
    int nthreads, pending;
    pthread_t *thread;
    pthread_mutex_t lock; /* guards queue, finished, quit */
    pthread_cond_t more, over; /* something to do; something is done */
    struct list queue;    /* not yet taken by a worker */
    struct list finished; /* done() not yet called */
    bool quit, posted;    /* posted: a collect() is on its way to the loop */
};

static void end(struct jobs *j, struct job *job)
{
    j->pending--;
    if (job->done)
        job->done(job->arg);
    free(job);
}

static void collect(void *arg)
{
    struct jobs *j = arg;
    for (;;) {
        pthread_mutex_lock(&j->lock);
        struct job *job = list_empty(&j->finished) ? NULL : container_of(j->finished.next, struct job, node);
        if (job)
            list_del(&job->node);
        else
            j->posted = false;
        pthread_mutex_unlock(&j->lock);
        if (!job)
            return;
        end(j, job);
    }
}

static void *worker(void *arg)
{
    struct jobs *j = arg;
    pthread_mutex_lock(&j->lock);
    for (;;) {
        while (list_empty(&j->queue) && !j->quit)
            pthread_cond_wait(&j->more, &j->lock);
        if (list_empty(&j->queue))
            break;
        struct job *job = container_of(j->queue.next, struct job, node);
        list_del(&job->node);
        pthread_mutex_unlock(&j->lock);
        job->work(job->arg);
        pthread_mutex_lock(&j->lock);
        list_add_tail(&j->finished, &job->node);
        pthread_cond_signal(&j->over);
        if (!j->posted && !j->quit) {
            j->posted = true;
            loop_post(j->loop, collect, j);
        }
    }
    pthread_mutex_unlock(&j->lock);
    return NULL;
}

struct jobs *jobs_new(struct loop *l, int nthreads)
{
    struct jobs *j = xcalloc(1, sizeof *j);
    j->loop = l;
    j->nthreads = nthreads > 0 ? nthreads : 1;
    j->thread = xcalloc((size_t)j->nthreads, sizeof *j->thread);
    list_init(&j->queue);
    list_init(&j->finished);
    pthread_mutex_init(&j->lock, NULL);
    pthread_cond_init(&j->more, NULL);
    pthread_cond_init(&j->over, NULL);
    /* Workers take no signals: those belong to the loop thread. */
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (int i = 0; i < j->nthreads; i++)
        if (pthread_create(&j->thread[i], NULL, worker, j))
            abort();
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return j;
}

void job_run(struct jobs *j, void (*work)(void *), void (*done)(void *), void *arg)
{
    struct job *job = xcalloc(1, sizeof *job);
    *job = (struct job){.pool = j, .work = work, .done = done, .arg = arg};
    j->pending++;
    pthread_mutex_lock(&j->lock);
    list_add_tail(&j->queue, &job->node);
    pthread_cond_signal(&j->more);
    pthread_mutex_unlock(&j->lock);
}

int jobs_pending(const struct jobs *j) { return j->pending; }

void jobs_finish(struct jobs *j)
{
    while (j->pending) {
        pthread_mutex_lock(&j->lock);
        while (list_empty(&j->finished))
            pthread_cond_wait(&j->over, &j->lock);
        struct job *job = container_of(j->finished.next, struct job, node);
        list_del(&job->node); /* a collect() that is on its way finds the list without it */
        pthread_mutex_unlock(&j->lock);
        end(j, job);
    }
}

static void bury(void *arg)
{
    struct jobs *j = arg;
    pthread_mutex_destroy(&j->lock);
    pthread_cond_destroy(&j->more);
    pthread_cond_destroy(&j->over);
    free(j->thread);
    free(j);
}

void jobs_free(struct jobs *j)
{
    if (!j)
        return;
    pthread_mutex_lock(&j->lock);
    j->quit = true;
    pthread_cond_broadcast(&j->more);
    pthread_mutex_unlock(&j->lock);
    for (int i = 0; i < j->nthreads; i++)
        pthread_join(j->thread[i], NULL);
    bool posted = j->posted;
    collect(j);
    /* A collect that was posted earlier still holds j: bury behind it. */
    if (posted)
        loop_post(j->loop, bury, j);
    else
        bury(j);
}
