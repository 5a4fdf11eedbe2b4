// Redisson as a peer: `Peer fight|fenced URL NAME TIMES LOG [HOLD_MS [PAUSE_MS]]` or `Peer serve URL [WATCHDOG_MS]`, as
// `../README.md` of this folder describes.

package dev.redlock.interop;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.ClusterServersConfig;
import org.redisson.config.Config;

/** The program that the tests start. */
public final class Peer {
    /** Redisson's own default, in ms. */
    private static final long WATCHDOG = 30_000;

    private static final String CLUSTER = "redis+cluster://";

    /** The thread of each session. */
    private static final Map<String, Thread> THREADS = new ConcurrentHashMap<>();

    private Peer() {}

    /**
     * Executes the command line.
     *
     * @param words as described at the top
     * @throws IOException when the log cannot be written
     * @throws ReflectiveOperationException when this version lacks a setting that the environment requests
     */
    public static void main(String[] words) throws IOException, ReflectiveOperationException {
        switch (words[0]) {
            case "fight", "fenced" -> {
                long hold = words.length > 5 ? Long.parseLong(words[5]) : 0;
                long pause = words.length > 6 ? Long.parseLong(words[6]) : 0;
                RedissonClient client = connect(words[1], WATCHDOG);
                boolean fenced = words[0].equals("fenced");
                fight(client, fenced, words[2], Integer.parseInt(words[3]), Path.of(words[4]), hold, pause);
                client.shutdown();
            }
            case "serve" -> {
                RedissonClient client = connect(words[1], words.length > 2 ? Long.parseLong(words[2]) : WATCHDOG);
                serve(client);
                client.shutdown();
            }
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    private static RedissonClient connect(String url, long watchdog) throws ReflectiveOperationException {
        Config config = new Config();
        config.setLockWatchdogTimeout(watchdog);
        if (url.startsWith(CLUSTER)) {
            ClusterServersConfig servers = config.useClusterServers();
            servers.addNodeAddress("redis://" + url.substring(CLUSTER.length()));
            String sharded = System.getenv("REDISSON_SHARDED");
            if (sharded != null) {
                // By name, since older versions do not have this setting.
                Class<?> mode = Class.forName("org.redisson.config.ShardedSubscriptionMode");
                Object value = mode.getMethod("valueOf", String.class).invoke(null, sharded);
                ClusterServersConfig.class.getMethod("setShardedSubscriptionMode", mode).invoke(servers, value);
            }
        } else {
            config.useSingleServer().setAddress(url);
        }
        return Redisson.create(config);
    }

    private static void fight(
            RedissonClient client, boolean fenced, String name, int times, Path path, long hold, long pause)
            throws IOException {
        try (OutputStream log = Files.newOutputStream(path, StandardOpenOption.CREATE, StandardOpenOption.APPEND)) {
            RFencedLock lock = client.getFencedLock(name);
            RLock plain = client.getLock(name);
            write(log, "ready - " + System.nanoTime() + "\n");
            for (int turn = 0; turn < times; turn++) {
                long called = System.nanoTime();
                String token = "-";
                if (fenced) {
                    token = lock.lockAndGetToken().toString();
                } else {
                    plain.lock();
                }
                long granted = System.nanoTime();
                rest(hold);
                // The unlock throws unless the lock is still held, so it was held at this moment.
                long released = System.nanoTime();
                (fenced ? lock : plain).unlock();
                write(
                        log,
                        "grant " + token + " " + granted + " " + called + "\nrelease " + token + " " + released + "\n");
                rest(pause);
            }
        }
    }

    private static void rest(long most) {
        if (most > 0) {
            LockSupport.parkNanos(ThreadLocalRandom.current().nextLong(most * 1_000_000));
        }
    }

    private static void write(OutputStream out, String text) throws IOException {
        out.write(text.getBytes(StandardCharsets.UTF_8));
        out.flush();
    }

    /** Serves orders. Each session is a thread, and so an owner of its own. */
    private static void serve(RedissonClient client) throws IOException {
        Map<String, ExecutorService> sessions = new HashMap<>();
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            String[] words = line.split(" ");
            sessions.computeIfAbsent(words[0], any -> Executors.newSingleThreadExecutor())
                    .execute(() -> answer(client, words));
        }
        sessions.values().forEach(ExecutorService::shutdownNow);
    }

    private static void answer(RedissonClient client, String[] words) {
        THREADS.put(words[0], Thread.currentThread());
        String end;
        try {
            end = "ok " + perform(client, words);
        } catch (Exception failure) {
            end = "failed " + failure.getClass().getSimpleName() + ": " + failure.getMessage();
        }
        long now = System.nanoTime();
        // Prints one line at a time, from whichever thread.
        System.out.println(words[0] + " " + now + " " + end.replace('\n', ' '));
    }

    private static Object perform(RedissonClient client, String[] words) throws InterruptedException {
        if (words[1].equals("id")) {
            return client.getId() + ":" + Thread.currentThread().getId();
        }
        if (words[1].equals("asleep")) {
            // True once another session sleeps after all its preparations, so that a message wakes it.
            return Arrays.stream(THREADS.get(words[2]).getStackTrace())
                    .anyMatch(frame -> frame.getClassName().equals(Semaphore.class.getName()));
        }
        RFencedLock fenced = client.getFencedLock(words[2]);
        boolean reads = words[1].startsWith("read-");
        boolean writes = words[1].startsWith("write-");
        RReadWriteLock both = client.getReadWriteLock(words[2]);
        RLock lock = reads ? both.readLock() : writes ? both.writeLock() : client.getLock(words[2]);
        // Both halves of a read/write lock are locks.
        return switch (words[1].substring(reads ? "read-".length() : writes ? "write-".length() : 0)) {
            // LEASE_MS, or nothing for the watchdog's lease.
            case "lock" -> {
                if (words.length > 3) {
                    lock.lock(Long.parseLong(words[3]), TimeUnit.MILLISECONDS);
                } else {
                    lock.lock();
                }
                yield "";
            }
            case "try" -> lock.tryLock(Long.parseLong(words[3]), TimeUnit.MILLISECONDS);
            case "unlock" -> {
                lock.unlock();
                yield "";
            }
            case "force" -> lock.forceUnlock();
            case "locked" -> lock.isLocked();
            case "held" -> lock.isHeldByCurrentThread();
            case "count" -> lock.getHoldCount();
            case "ttl" -> lock.remainTimeToLive();
            case "fenced-lock" -> fenced.lockAndGetToken();
            case "fenced-unlock" -> {
                fenced.unlock();
                yield "";
            }
            case "token" -> fenced.getToken();
            default -> throw new IllegalArgumentException(words[1]);
        };
    }
}
