package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static shop.RedisServer.eventually;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.springframework.boot.SpringApplication;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.jdbc.core.simple.JdbcClient;

/** The recipe for Spring Boot. Replicas are applications of one JVM with clients and a database, or JVMs. */
class ShopTest {
    private static final String ORDER = "order:1";
    private static final String REPORT = "daily-report";

    @TempDir
    Path folder;

    private final HttpClient http = HttpClient.newHttpClient();
    private final String database = "jdbc:h2:mem:" + UUID.randomUUID() + ";DB_CLOSE_DELAY=-1";
    private final List<AutoCloseable> opened = new ArrayList<>();
    private RedisServer server;
    private Service service;

    @BeforeEach
    void open() throws Exception {
        server = new RedisServer();
        service = new Service();
    }

    @AfterEach
    void close() throws Exception {
        service.close();
        for (AutoCloseable one : opened) one.close();
        server.close();
    }

    /** A file of SQL that makes one order, unless it is there. */
    private Path data() {
        try {
            return Files.writeString(folder.resolve("data.sql"),
                    "INSERT INTO purchase SELECT 1, FALSE WHERE NOT EXISTS (SELECT 1 FROM purchase);");
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private List<String> settings(String... more) {
        List<String> settings = new ArrayList<>(List.of("--redlock.urls=" + server.url(),
                "--shop.url=" + service.url(), "--spring.datasource.url=" + database, "--spring.sql.init.mode=always",
                "--spring.sql.init.data-locations=file:" + data(),
                "--spring.main.banner-mode=off", "--logging.level.root=WARN"));
        settings.addAll(List.of(more));
        return settings;
    }

    /** A replica in this JVM. */
    private ConfigurableApplicationContext replica(String... more) {
        List<String> settings = settings(more);
        settings.add("--server.port=0");
        var context = SpringApplication.run(ShopApplication.class, settings.toArray(String[]::new));
        opened.add(context);
        return context;
    }

    private static String url(ConfigurableApplicationContext context) {
        return "http://127.0.0.1:" + context.getEnvironment().getProperty("local.server.port");
    }

    private CompletableFuture<Integer> post(String url) {
        HttpRequest request = HttpRequest.newBuilder(URI.create(url)).POST(HttpRequest.BodyPublishers.noBody()).build();
        return http.sendAsync(request, HttpResponse.BodyHandlers.discarding()).thenApply(HttpResponse::statusCode);
    }

    private static int status(CompletableFuture<Integer> reply) throws Exception {
        return reply.get(60, TimeUnit.SECONDS);
    }

    // ---- the endpoint -----------------------------------------------------------------------------------------------

    @Test
    void commitsBeforeItReleases() throws Exception {
        String here = url(replica("--controls=true"));
        String there = url(replica("--controls=true"));
        var first = post(here + "/orders/1/pay");
        Service.Held charge = service.next();
        assertTrue(Long.parseLong(charge.token()) > 0);
        charge.answer();
        Service.Held commit = service.next();
        assertEquals("/commit", commit.path());
        assertTrue(server.holds(ORDER));
        var second = post(there + "/orders/1/pay");
        eventually(() -> server.isAwaited(ORDER)); // it waits, and has not read the order yet

        commit.answer();
        Service.Held nothing = service.next(); // the second request had nothing to do
        assertEquals("/commit", nothing.path());
        nothing.answer();
        assertEquals(List.of(200, 200), List.of(status(first), status(second)));
        assertTrue(service.isIdle());
        assertFalse(server.holds(ORDER));
    }

    @Test
    void controlOfAReleaseBeforeTheCommit() throws Exception {
        String shop = url(replica("--controls=true"));
        post(shop + "/early/1/pay");
        service.next().answer();
        assertEquals("/commit", service.next().path()); // the first request has released, and not committed
        post(shop + "/early/1/pay");
        assertEquals("/orders/1/charge", service.next().path()); // the second one read the order as it was before
    }

    @Test
    void refusesAnOuterTransaction() throws Exception {
        String shop = url(replica("--controls=true"));
        assertEquals(500, status(post(shop + "/refused/1/pay")));
        assertTrue(service.isIdle()); // it failed before it charged
        assertFalse(server.holds(ORDER));
    }

    @Test
    void doesNotHang() throws Exception {
        String shop = url(replica());
        var first = post(shop + "/orders/1/pay");
        Service.Held charge = service.next();
        assertEquals(409, status(post(shop + "/orders/1/pay")));
        charge.answer();
        assertEquals(200, status(first));
    }

    @Test
    void answersALoss() throws Exception {
        var paying = post(url(replica()) + "/orders/1/pay");
        Service.Held charge = service.next();
        server.delete(ORDER);
        charge.answer();
        assertEquals(503, status(paying));
    }

    @Test
    void answersInAnOutage() throws Exception {
        String shop = url(replica("--redlock.urls=redis://127.0.0.1:" + RedisServer.freePort()));
        assertEquals(503, status(post(shop + "/orders/1/pay")));
    }

    // ---- the job ----------------------------------------------------------------------------------------------------

    @Test
    void theReportIsMadeOnce() throws Exception {
        var here = replica("--report.cron=* * * * * *");
        replica("--report.cron=* * * * * *");
        Service.Held report = service.next();
        eventually(() -> server.isAwaited(REPORT)); // the other replica waits
        report.answer();
        JdbcClient rows = here.getBean(JdbcClient.class);
        eventually(() -> rows.sql("SELECT count(*) FROM report").query(Integer.class).single() == 1);
        // Each replica gets the lock again and again, and finds the report.
        for (int run = 0; run < 4; run++) {
            String token = server.token(REPORT);
            eventually(() -> !server.token(REPORT).equals(token));
        }
        assertTrue(service.isIdle());
    }

    // ---- SIGTERM ----------------------------------------------------------------------------------------------------

    /** A replica in a JVM of its own, and its URL. */
    private record Program(Process process, String url) implements AutoCloseable {
        @Override
        public void close() {
            process.destroyForcibly();
        }
    }

    private Program program(Class<?> main) throws IOException, InterruptedException {
        int port = RedisServer.freePort();
        Path log = folder.resolve("log");
        List<String> command = new ArrayList<>(List.of(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(), "-XX:TieredStopAtLevel=1", "-cp",
                System.getProperty("surefire.test.class.path", System.getProperty("java.class.path")), main.getName()));
        command.addAll(settings("--server.port=" + port));
        Process process = new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(new File("" + log)).start();
        Program program = new Program(process, "http://127.0.0.1:" + port);
        opened.add(program);
        eventually(() -> {
            if (!process.isAlive()) throw new AssertionError(read(log));
            return post(program.url() + "/").handle((status, error) -> error == null).join();
        });
        return program;
    }

    private static String read(Path file) {
        try {
            return Files.readString(file);
        } catch (IOException error) {
            return error.toString();
        }
    }

    @Test
    void sigtermLetsRequestsEnd() throws Exception {
        Program shop = program(ShopApplication.class);
        var paying = post(shop.url() + "/orders/1/pay");
        Service.Held charge = service.next();
        shop.process().destroy();
        eventually(() -> post(shop.url() + "/").handle((status, error) -> error != null).join()); // accepts nothing more
        assertTrue(server.holds(ORDER));
        charge.answer();
        assertEquals(200, status(paying));
        assertEquals(0, shop.process().waitFor());
        assertFalse(server.holds(ORDER));
    }

    @Test
    void controlOfSigtermWithoutAHandler() throws Exception {
        Program shop = program(Controls.WithoutHandler.class);
        var paying = post(shop.url() + "/orders/1/pay");
        Service.Held charge = service.next();
        shop.process().destroy();
        eventually(() -> !server.holds(ORDER)); // released, while the request is under way
        charge.answer();
        assertEquals(503, status(paying)); // lease.check() found the loss, and the transaction was rolled back
    }
}
