package shop;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.function.BooleanSupplier;

/** A redis-server without persistence, on a free port. */
final class RedisServer implements AutoCloseable {
    private final int port = freePort();
    private final Process process;

    RedisServer() throws IOException, InterruptedException {
        Path folder = Files.createTempDirectory("redlock-");
        process = new ProcessBuilder("redis-server", "--port", "" + port, "--bind", "127.0.0.1", "--save", "")
                .directory(folder.toFile()).redirectOutput(ProcessBuilder.Redirect.DISCARD).start();
        eventually(() -> {
            if (!process.isAlive()) throw new AssertionError("redis-server ended");
            try {
                return command("PING").equals("+PONG");
            } catch (IOException notYet) {
                return false;
            }
        });
    }

    static int freePort() {
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return socket.getLocalPort();
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Waits until a condition is true, for a minute at most. */
    static void eventually(BooleanSupplier condition) throws InterruptedException {
        long end = System.nanoTime() + 60_000_000_000L;
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > end) throw new AssertionError("not within a minute");
            Thread.sleep(5);
        }
    }

    String url() {
        return "redis://127.0.0.1:" + port;
    }

    /** Whether the key of a lock exists. */
    boolean holds(String lock) {
        return reply("EXISTS", lock).equals(":1");
    }

    /** Deletes the key of a lock, as nobody should. */
    void delete(String lock) {
        reply("DEL", lock);
    }

    /** Whether a connection listens for the release of a lock. */
    boolean isAwaited(String lock) {
        return reply("PUBSUB", "NUMSUB", "redisson_lock__channel:{" + lock + "}").endsWith(":1");
    }

    /** The last fencing token of a lock. */
    String token(String lock) {
        return reply("GET", "redlock_token:{" + lock + "}");
    }

    private String reply(String... words) {
        try {
            return command(words);
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Runs one command, and returns the first line of its reply; of a list also those of its elements. */
    private String command(String... words) throws IOException {
        StringBuilder request = new StringBuilder("*" + words.length + "\r\n");
        for (String word : words) request.append("$" + word.length() + "\r\n" + word + "\r\n");
        try (Socket socket = new Socket(InetAddress.getLoopbackAddress(), port)) {
            socket.setSoTimeout(10_000);
            socket.getOutputStream().write(request.toString().getBytes());
            BufferedReader reader = new BufferedReader(new InputStreamReader(socket.getInputStream()));
            StringBuilder reply = new StringBuilder();
            for (int lines = 1; lines > 0; lines--) {
                String line = reader.readLine();
                if (line == null) throw new IOException("redis-server hung up");
                reply.append(line);
                if (line.startsWith("*")) lines += Integer.parseInt(line.substring(1));
                if (line.startsWith("$") && !line.equals("$-1")) lines++;
            }
            return reply.toString();
        }
    }

    @Override
    public void close() {
        process.destroyForcibly();
    }
}
