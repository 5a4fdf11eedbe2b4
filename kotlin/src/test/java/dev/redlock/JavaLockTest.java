package dev.redlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Lock;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The API for Java, used from Java. */
@Timeout(value = 120, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class JavaLockTest extends OnServer {
    JavaLockTest() {
        super(new RedlockOptions().patience(Duration.ofSeconds(2)).watchdog(Duration.ofSeconds(20)));
    }

    /** Runs work in a thread of its own. */
    private static final class Work<T> extends FutureTask<T> {
        private final Thread thread = new Thread(this);

        Work(Callable<T> work) {
            super(work);
            thread.start();
        }

        T end() throws Exception {
            try {
                return get(60, TimeUnit.SECONDS);
            } catch (ExecutionException failure) {
                throw (Exception) failure.getCause();
            }
        }

        void interrupt() {
            thread.interrupt();
        }
    }

    private static <T> T elsewhere(Callable<T> work) throws Exception {
        return new Work<>(work).end();
    }

    private JavaLock lock(String name) {
        return getClient().lock(name).asJavaLock();
    }

    /** Waits until the server has a waiter for a lock. */
    private void awaitWaiter(String name) {
        RedisServerKt.eventually("somebody waits", () -> getServer().listeners(name) == 1);
    }

    @Test
    void readersAndAWriter() throws Exception {
        ReadWriteLock config = getClient().readWriteLock("config");
        try (Lease reading = config.getReadLock().acquireBlocking()) {
            assertNull(elsewhere(() -> config.getWriteLock().tryAcquireBlocking()));
            assertEquals(LockKind.READ, config.getReadLock().inspectBlocking().getKind());
            assertTrue(reading.tryUpgradeBlocking());
            reading.downgradeBlocking();
        }
        java.util.concurrent.locks.ReadWriteLock java = config.asJavaReadWriteLock();
        java.readLock().lock();
        assertFalse(elsewhere(() -> java.writeLock().tryLock()));
        java.readLock().unlock();
        assertTrue(java.writeLock().tryLock(10, TimeUnit.SECONDS));
        java.writeLock().unlock();
    }

    @Test
    void leasesInTryWithResources() throws Exception {
        dev.redlock.Lock lock = getClient().lock("lease", new LockOptions().wait(Duration.ofMillis(500)));
        try (Lease lease = lock.acquireBlocking()) {
            assertTrue(lease.getHeld() && lease.getToken() > 0 && lease.remainingMillis() > 1000);
            lease.extendBlocking(Duration.ofSeconds(40));
            lease.check();
            assertNull(elsewhere(() -> getClient().lock("lease").tryAcquireBlocking()));
            assertEquals("timeout", assertThrows(LockTimeout.class, () -> elsewhere(lock::acquireBlocking)).getCode());
        }
        assertFalse(lock.lockedBlocking());
        LockLost lost = assertThrows(LockLost.class, () -> {
            try (Lease lease = lock.acquireBlocking(Duration.ofSeconds(5))) {
                steal(lease.getName());
            }
        });
        assertEquals(LostReason.DELETED, lost.getReason());
        IllegalStateException own = assertThrows(IllegalStateException.class, () -> {
            try (Lease lease = lock.acquireBlocking()) {
                steal(lease.getName());
                throw new IllegalStateException("own");
            }
        });
        assertInstanceOf(LockLost.class, own.getSuppressed()[0]);
    }

    @Test
    void aThreadTakesItAgainWithoutARoundTrip() throws Exception {
        JavaLock lock = lock("again");
        lock.lock();
        Long token = lock.token();
        getServer().freeze();
        try {
            lock.lock();
            assertTrue(lock.tryLock());
            assertTrue(lock("again").tryLock(), "also by another view of it");
            assertEquals(token, lock.token());
            for (int times = 0; times < 3; times++) {
                lock.unlock();
                assertTrue(lock.isHeldByCurrentThread());
            }
        } finally {
            getServer().thaw();
        }
        lock.unlock();
        assertFalse(lock.isHeldByCurrentThread());
        assertNull(lock.token());
        assertFalse(getServer().holds("again"));
    }

    @Test
    void threadsExcludeEachOther() throws Exception {
        JavaLock lock = lock("threads");
        lock.lock();
        assertTrue(lock.isHeldByCurrentThread());
        boolean taken = elsewhere(lock::tryLock);
        assertFalse(taken);
        boolean held = elsewhere(lock::isHeldByCurrentThread);
        assertFalse(held);
        assertNull(elsewhere(lock::token));
        assertFalse(elsewhere(() -> lock.tryLock(100, TimeUnit.MILLISECONDS)));
        assertFalse(elsewhere(() -> lock.tryLock(-1, TimeUnit.SECONDS)));
        Work<Boolean> waiting = new Work<>(() -> {
            boolean got = lock.tryLock(60, TimeUnit.SECONDS);
            lock.unlock();
            return got;
        });
        lock.unlock();
        assertTrue(waiting.end());
        assertTrue(lock.tryLock(Long.MAX_VALUE, TimeUnit.DAYS));
        lock.unlock();
    }

    @Test
    void manyThreadsNeverOverlap() throws Exception {
        Lock lock = lock("crowd");
        AtomicInteger inside = new AtomicInteger();
        List<Work<Void>> all = new ArrayList<>();
        for (int number = 0; number < 8; number++) {
            all.add(new Work<>(() -> {
                for (int times = 0; times < 50; times++) {
                    lock.lock();
                    try {
                        assertEquals(1, inside.incrementAndGet());
                        Thread.yield();
                        inside.decrementAndGet();
                    } finally {
                        lock.unlock();
                    }
                }
                return null;
            }));
        }
        for (Work<Void> work : all) {
            work.end();
        }
    }

    @Test
    void interruptsEndWhatIsInterruptible() throws Exception {
        Redlock other = new Redlock(getServer().getUrl());
        JavaLock lock = other.lock("interrupted").asJavaLock();
        try (Lease lease = getClient().lock("interrupted").acquireBlocking()) {
            List<Callable<Object>> calls = List.of(
                    () -> {
                        lock.lockInterruptibly();
                        return null;
                    },
                    () -> lock.tryLock(60, TimeUnit.SECONDS),
                    () -> other.lock("interrupted").acquireBlocking());
            for (Callable<Object> call : calls) {
                Work<Object> work = new Work<>(() -> {
                    assertThrows(InterruptedException.class, call::call);
                    return Thread.currentThread().isInterrupted();
                });
                awaitWaiter("interrupted");
                work.interrupt();
                assertEquals(false, work.end(), "the mark is cleared");
                RedisServerKt.eventually("nobody waits", () -> getServer().listeners("interrupted") == 0);
                // A call of a thread that is interrupted already does not start.
                assertThrows(InterruptedException.class, () -> elsewhere(() -> {
                    Thread.currentThread().interrupt();
                    return call.call();
                }));
            }
            assertTrue(lease.getHeld());
        }
        other.close();
    }

    @Test
    void interruptsWaitForWhatIsNot() throws Exception {
        JavaLock lock = lock("patient");
        Lease lease = getClient().lock("patient").acquireBlocking();
        Work<Boolean> work = new Work<>(() -> {
            lock.lock();
            lock.unlock();
            return Thread.currentThread().isInterrupted();
        });
        work.interrupt();
        assertThrows(java.util.concurrent.TimeoutException.class, () -> work.get(300, TimeUnit.MILLISECONDS));
        lease.close();
        assertTrue(work.end(), "the mark is kept");
        assertTrue(elsewhere(() -> {
            Lease mine = getClient().lock("patient").acquireBlocking();
            Thread.currentThread().interrupt();
            mine.close();
            return Thread.currentThread().isInterrupted();
        }));
        assertFalse(getServer().holds("patient"));
    }

    @Test
    void whatIsNotHeldCannotBeUnlocked() throws Exception {
        JavaLock lock = lock("unheld");
        assertInstanceOf(NotHeld.class, assertThrows(IllegalMonitorStateException.class, lock::unlock).getCause());
        lock.lock();
        assertThrows(IllegalMonitorStateException.class, () -> elsewhere(() -> {
            lock.unlock();
            return null;
        }));
        steal("unheld");
        assertEquals(LostReason.DELETED, assertThrows(LockLost.class, lock::unlock).getReason());
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
        assertThrows(UnsupportedOperationException.class, lock::newCondition);
    }

    @Test
    void waitingForOneselfIsRefused() throws Exception {
        JavaLock lock = lock("self");
        try (Lease lease = getClient().lock("self").acquireBlocking()) {
            assertThrows(WouldDeadlock.class, lock::lock);
            assertFalse(lock.tryLock());
            assertTrue(lease.getHeld());
        }
    }

    @Test
    void anOwnExceptionIsNotMaskedByALoss() throws Exception {
        JavaLock lock = lock("masked");
        lock.runLocked(() -> assertTrue(lock.isHeldByCurrentThread()));
        String result = lock.callLocked(() -> "result");
        assertEquals("result", result);
        assertFalse(lock.isHeldByCurrentThread());
        IOException checked = assertThrows(IOException.class, () -> lock.callLocked(() -> {
            steal("masked");
            throw new IOException("own");
        }));
        assertInstanceOf(LockLost.class, checked.getSuppressed()[0]);
        IllegalStateException own = assertThrows(IllegalStateException.class, () -> lock.runLocked(() -> {
            steal("masked");
            throw new IllegalStateException("own");
        }));
        assertInstanceOf(LockLost.class, own.getSuppressed()[0]);
        assertThrows(LockLost.class, () -> lock.runLocked(() -> steal("masked")));
        IllegalStateException plain = assertThrows(IllegalStateException.class, () -> lock.runLocked(() -> {
            throw new IllegalStateException("own");
        }));
        assertEquals(0, plain.getSuppressed().length);
        assertFalse(getServer().holds("masked"));
    }

    @Test
    void aClosedClientHasLostTheLock() {
        Redlock closing = new Redlock(getServer().getUrl());
        JavaLock lock = closing.lock("closing").asJavaLock();
        lock.lock(); // runLocked nests in this hold
        LockLost lost = assertThrows(LockLost.class, () -> lock.runLocked(closing::close));
        assertEquals(LostReason.CLOSED, lost.getReason());
        assertEquals(LostReason.CLOSED, assertThrows(LockLost.class, lock::unlock).getReason());
        assertThrows(Closed.class, lock::lock);
        Redlock other = new Redlock(getServer().getUrl());
        IllegalStateException own = assertThrows(
            IllegalStateException.class,
            () -> other.lock("closing").asJavaLock().runLocked(() -> {
                other.close();
                throw new IllegalStateException("own");
            })
        );
        assertInstanceOf(LockLost.class, own.getSuppressed()[0]);
    }

    private static <E extends Throwable> E failure(Class<E> kind, CompletableFuture<?> future) {
        return assertInstanceOf(kind, assertThrows(ExecutionException.class, () -> end(future)).getCause());
    }

    private static <T> T end(CompletableFuture<T> future) throws Exception {
        return future.get(60, TimeUnit.SECONDS);
    }

    @Test
    void futures() throws Exception {
        try (Redlock other = new Redlock(getServer().getUrl())) {
            dev.redlock.Lock lock = getClient().lock("future");
            Lease lease = end(lock.acquireAsync());
            assertNull(end(lock.tryAcquireAsync()));
            end(lease.extendAsync(Duration.ofSeconds(40)));
            assertTrue(lease.remainingMillis() > 30_000);
            failure(LockTimeout.class, lock.acquireAsync(Duration.ofMillis(10)));
            failure(InvalidArgument.class, lease.extendAsync(Duration.ofMillis(1)));
            for (Consumer<CompletableFuture<Lease>> end : List.<Consumer<CompletableFuture<Lease>>>of(
                    future -> future.cancel(true),
                    future -> future.orTimeout(1, TimeUnit.MILLISECONDS),
                    future -> future.complete(null))) {
                CompletableFuture<Lease> waiting = other.lock("future").acquireAsync();
                awaitWaiter("future");
                end.accept(waiting);
                RedisServerKt.eventually("nobody waits", () -> getServer().listeners("future") == 0);
            }
            // A dependent stage may block, because it does not run on the thread that fetches results.
            CompletableFuture<ReleaseOutcome> chain = other.lock("future").acquireAsync().thenApply(Lease::releaseBlocking);
            assertEquals(ReleaseOutcome.RELEASED, end(lease.releaseAsync()));
            assertEquals(ReleaseOutcome.RELEASED, end(chain));
            failure(NotHeld.class, lock.releaseAsync());
            Lease tried = end(lock.tryAcquireAsync());
            assertEquals(ReleaseOutcome.RELEASED, end(lock.releaseAsync()));
            assertFalse(tried.getHeld());
            Semaphore gpus = getClient().semaphore("futures", 2);
            Lease both = end(gpus.acquireAsync(2));
            assertNull(end(gpus.tryAcquireAsync()));
            both.close();
        }
    }

    @Test
    void aFutureThatIsCancelledAtAnyMomentLeavesNothing() throws Exception {
        dev.redlock.Lock lock = getClient().lock("cancelled");
        long began = System.nanoTime();
        end(end(lock.acquireAsync()).releaseAsync());
        long usual = System.nanoTime() - began;
        for (int moment = 0; moment < 200; moment++) {
            CompletableFuture<Lease> future = lock.acquireAsync();
            long until = System.nanoTime() + usual * 2 * moment / 200;
            while (System.nanoTime() < until) {
                Thread.onSpinWait();
            }
            if (!future.cancel(true)) {
                end(end(future).releaseAsync());
            }
        }
        assertEquals(ReleaseOutcome.RELEASED, end(end(lock.acquireAsync()).releaseAsync()));
    }

    @Test
    void theLocksOwnWaitBoundsLock() {
        JavaLock lock = getClient().lock("bounded", new LockOptions().wait(Duration.ofMillis(100))).asJavaLock();
        JavaLock free = lock("bounded");
        free.lock();
        assertThrows(LockTimeout.class, () -> elsewhere(() -> {
            lock.lock();
            return null;
        }));
        free.unlock();
    }

    @Test
    void virtualThreadsHoldAndWait() throws Exception {
        // By reflection: virtual threads exist since Java 21.
        assumeTrue(Runtime.version().feature() >= 21);
        JavaLock lock = lock("virtual");
        AtomicInteger inside = new AtomicInteger();
        List<FutureTask<Object>> all = new ArrayList<>();
        for (int number = 0; number < 50; number++) {
            FutureTask<Object> task = new FutureTask<>(() -> {
                lock.lock();
                lock.lock();
                assertEquals(1, inside.incrementAndGet());
                // This needs a free carrier to continue: the waiting threads must not pin all carriers.
                Thread.sleep(5);
                inside.decrementAndGet();
                lock.unlock();
                assertTrue(lock.isHeldByCurrentThread());
                lock.unlock();
                return null;
            });
            all.add(task);
            Thread.class.getMethod("startVirtualThread", Runnable.class).invoke(null, task);
        }
        for (FutureTask<Object> task : all) {
            task.get(60, TimeUnit.SECONDS);
        }
    }

    @Test
    void virtualThreadsThatUnlockLetTheirCarriersGo() throws Exception {
        assumeTrue(Runtime.version().feature() >= 21);
        // Longer than any wait in this test.
        RedlockOptions options = new RedlockOptions().replyTimeout(Duration.ofSeconds(50));
        try (Redlock client = new Redlock(getServer().getUrl(), options)) {
            int carriers = Runtime.getRuntime().availableProcessors();
            CountDownLatch held = new CountDownLatch(carriers + 1);
            CountDownLatch go = new CountDownLatch(1);
            AtomicInteger unlocking = new AtomicInteger();
            List<FutureTask<Object>> all = new ArrayList<>();
            List<Thread> threads = new ArrayList<>();
            for (int number = 0; number <= carriers; number++) {
                JavaLock lock = client.lock("unlocking-" + number).asJavaLock();
                FutureTask<Object> task = new FutureTask<>(() -> {
                    lock.lock();
                    held.countDown();
                    go.await();
                    unlocking.incrementAndGet();
                    lock.unlock();
                    return null;
                });
                all.add(task);
                threads.add((Thread) Thread.class.getMethod("startVirtualThread", Runnable.class).invoke(null, task));
            }
            assertTrue(held.await(20, TimeUnit.SECONDS));
            getServer().freeze();
            try {
                go.countDown();
                long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
                while (unlocking.get() <= carriers
                        || !threads.stream().allMatch(thread -> thread.getState() == Thread.State.WAITING)) {
                    assertTrue(System.nanoTime() < end, unlocking.get() + " of " + threads.size() + " got to unlock");
                    Thread.onSpinWait();
                }
            } finally {
                getServer().thaw();
            }
            for (FutureTask<Object> task : all) {
                task.get(60, TimeUnit.SECONDS);
            }
        }
    }

    @Test
    void clientsAndOptions() throws Exception {
        // With `quarantine`, the server grants nothing until it has run for `maxTtl`.
        RedlockOptions options = new RedlockOptions().quorum(1).prefix("java:").wire(Wire.REDISSON).drift(0.2)
                .tokenKey(TokenKey.REDLOCK).tokenTtl(Duration.ofHours(2)).maxTtl(Duration.ofSeconds(5)).connectTimeout(Duration.ofSeconds(1))
                .replyTimeout(Duration.ofSeconds(1)).strict(false).quarantine(true).identify(true).app("java");
        try (Redlock client = new Redlock(List.of(getServer().getUrl()), options)) {
            LockOptions lockOptions = new LockOptions().ttl(Duration.ofSeconds(5)).owner("java").reentrant(true).fair(true);
            Lease lease = client.lock("options", lockOptions).acquireBlocking();
            assertTrue(getServer().holds("java:options"));
            String text = lease.detach();
            Lease attached = client.attachBlocking(text);
            assertEquals("java", attached.getOwner());
            LockInfo info = client.lock("options").inspectBlocking();
            assertNotNull(info);
            assertTrue(info.getTtlMillis() > 1000);
            assertTrue(client.forceReleaseBlocking("options"));
            dev.redlock.Lock tick = client.lock("tick", new LockOptions().minHold(Duration.ofSeconds(5)));
            assertEquals(ReleaseOutcome.RELEASED, tick.acquireBlocking().releaseBlocking());
            assertEquals(LockKind.REST, tick.inspectBlocking().getKind());
            assertEquals(ReleaseOutcome.LOST, attached.releaseBlocking());
            assertTrue(client.pingBlocking().get(0).getUp());
        }
        assertThrows(InvalidArgument.class, () -> getClient().lock("x", new LockOptions().ttl(Duration.ofMillis(1))));
        assertThrows(InvalidArgument.class, () -> new Redlock("memory://", new RedlockOptions().certificate("", "")
                .credentials("user", "secret").ca("/nowhere.pem").drift(7)));
        DefaultRedlock.configure(getServer().getUrl());
        try (Lease lease = DefaultRedlock.lock("default").acquireBlocking()) {
            assertTrue(getServer().holds(lease.getName()));
        }
    }
}
