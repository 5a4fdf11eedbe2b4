package shop;

import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** The service that the recipe calls. It holds each request until the test answers it. */
final class Service implements AutoCloseable {
    /** A request that has arrived, and gets no reply before {@link #answer}. */
    record Held(String path, String token, CountDownLatch answered) {
        void answer() {
            answered.countDown();
        }
    }

    private final BlockingQueue<Held> arrived = new LinkedBlockingQueue<>();
    private final HttpServer server;

    Service() throws IOException {
        server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 50);
        server.setExecutor(Executors.newCachedThreadPool(work -> {
            Thread thread = new Thread(work);
            thread.setDaemon(true);
            return thread;
        }));
        server.createContext("/", exchange -> {
            String token = exchange.getRequestHeaders().getFirst("Fencing-Token");
            Held held = new Held(exchange.getRequestURI().getPath(), token, new CountDownLatch(1));
            arrived.add(held);
            try {
                held.answered().await();
            } catch (InterruptedException ended) {
                return;
            }
            byte[] reply = "done".getBytes();
            exchange.sendResponseHeaders(200, reply.length);
            exchange.getResponseBody().write(reply);
            exchange.close();
        });
        server.start();
    }

    String url() {
        return "http://127.0.0.1:" + server.getAddress().getPort();
    }

    /** Waits for the next request. */
    Held next() throws InterruptedException {
        Held held = arrived.poll(60, TimeUnit.SECONDS);
        if (held == null) throw new AssertionError("no request within a minute");
        return held;
    }

    /** Whether no request has arrived that {@link #next} has not returned. */
    boolean isIdle() {
        return arrived.isEmpty();
    }

    @Override
    public void close() {
        server.stop(0);
    }
}
