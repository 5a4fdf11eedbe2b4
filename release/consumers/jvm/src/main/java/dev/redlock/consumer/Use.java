package dev.redlock.consumer;

import dev.redlock.JavaLock;
import dev.redlock.Lease;
import dev.redlock.LockOptions;
import dev.redlock.Redlock;
import dev.redlock.RedlockOptions;
import dev.redlock.Unavailable;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * Uses an installed redlock-core as a user's program does: Use [URL [TLS_URL CA]]
 *
 * <p>Prints one line about what it did, or fails. Needs only the package, and a redis-server if a URL is given.
 */
public final class Use {
    private static final int ROUNDS = 30;
    private static final Duration WATCHDOG = Duration.ofSeconds(1);

    public static void main(String[] arguments) throws Exception {
        if (arguments.length > 0 && arguments[0].equals("count")) {
            count(arguments[1], Path.of(arguments[2]));
            return;
        }
        List<String> did = new ArrayList<>(List.of(memory()));
        if (arguments.length > 0 && !arguments[0].equals("memory://")) {
            String url = arguments[0];
            did.addAll(List.of(nested(url), keptAlive(url), contention(url)));
        }
        if (arguments.length > 1) {
            did.add(tls(arguments[1], arguments[2]));
        }
        String version = Redlock.class.getPackage().getImplementationVersion();
        String java = System.getProperty("java.version");
        System.out.printf("redlock-core %s, Java %s: %s%n", version, java, String.join(", ", did));
    }

    private static String memory() throws InterruptedException {
        try (Redlock client = new Redlock("memory://"); Lease lease = client.lock("packaging").acquireBlocking()) {
            demand(lease.getHeld() && lease.getToken() > 0, "a lease in memory");
        }
        return "memory://";
    }

    private static String nested(String url) throws InterruptedException {
        try (Redlock client = new Redlock(url)) {
            JavaLock lock = client.lock("packaging").asJavaLock();
            lock.lock();
            Long token = lock.token();
            lock.lock();
            demand(token.equals(lock.token()), "one token, however often it is taken");
            lock.unlock();
            demand(lock.isHeldByCurrentThread() && isTaken(url), "held until the last unlock");
            lock.unlock();
            demand(!isTaken(url), "free after it");
        }
        return "nested";
    }

    private static String keptAlive(String url) throws InterruptedException {
        RedlockOptions options = new RedlockOptions().watchdog(WATCHDOG);
        try (Redlock client = new Redlock(url, options); Lease lease = client.lock("packaging").acquireBlocking()) {
            // Longer than the ttl, so that only a renewed lease is still held.
            Thread.sleep(3 * WATCHDOG.toMillis());
            lease.check();
            demand(isTaken(url), "a lease that is renewed");
        }
        return "kept alive";
    }

    private static boolean isTaken(String url) throws InterruptedException {
        try (Redlock other = new Redlock(url); Lease lease = other.lock("packaging").tryAcquireBlocking()) {
            return lease == null;
        }
    }

    private static String contention(String url) throws Exception {
        Path counter = Files.createTempFile("redlock-", ".counter");
        Files.writeString(counter, "0");
        List<Process> others = new ArrayList<>();
        try (Redlock client = new Redlock(url)) {
            // Holds the lock until both processes are ready, so that they count at the same time.
            try (Lease lease = client.lock("packaging:counter").acquireBlocking()) {
                for (int number = 0; number < 2; number++) {
                    others.add(again("count", url, counter.toString()));
                }
                for (Process other : others) {
                    demand("ready".equals(other.inputReader().readLine()), "another process that is ready");
                }
                lease.check();
            }
            for (Process other : others) {
                demand(other.waitFor(120, TimeUnit.SECONDS) && other.exitValue() == 0, "another process that counts");
            }
        } finally {
            others.forEach(Process::destroyForcibly);
        }
        demand(Files.readString(counter).equals(String.valueOf(2 * ROUNDS)), "a count of " + 2 * ROUNDS);
        Files.delete(counter);
        return "contention of processes";
    }

    private static Process again(String... arguments) throws IOException {
        String java = ProcessHandle.current().info().command().orElseThrow();
        List<String> command = new ArrayList<>(List.of(java, "--enable-native-access=ALL-UNNAMED"));
        command.addAll(List.of("-cp", System.getProperty("java.class.path"), Use.class.getName()));
        command.addAll(List.of(arguments));
        return new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
    }

    /** Increments a counter in a file ROUNDS times. Without the lock, increments would be lost. */
    private static void count(String url, Path counter) throws Exception {
        try (Redlock client = new Redlock(url)) {
            System.out.println("ready");
            for (int round = 0; round < ROUNDS; round++) {
                try (Lease lease = client.lock("packaging:counter").acquireBlocking()) {
                    int before = Integer.parseInt(Files.readString(counter));
                    // Gives the other process time to interfere.
                    Thread.sleep(1);
                    lease.check();
                    Files.writeString(counter, String.valueOf(before + 1));
                }
            }
        }
    }

    private static String tls(String url, String authority) throws InterruptedException {
        try (Redlock client = new Redlock(url, new RedlockOptions().ca(authority));
                Lease lease = client.lock("packaging").acquireBlocking()) {
            lease.check();
        }
        LockOptions once = new LockOptions().wait(Duration.ZERO);
        try (Redlock client = new Redlock(url); Lease lease = client.lock("packaging", once).acquireBlocking()) {
            throw new AssertionError("a server with a certificate of nobody's was trusted: " + lease);
        } catch (Unavailable expected) {
            return "TLS";
        }
    }

    private static void demand(boolean met, String what) {
        if (!met) {
            throw new AssertionError("not seen: " + what);
        }
    }
}
