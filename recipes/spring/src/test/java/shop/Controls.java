package shop;

import dev.redlock.Redlock;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.jdbc.core.simple.JdbcClient;
import org.springframework.transaction.TransactionExecution;
import org.springframework.transaction.TransactionExecutionListener;
import org.springframework.transaction.annotation.Transactional;
import org.springframework.transaction.support.TransactionTemplate;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RestController;

/** Commits that the test holds, and the recipe with its mistakes: the tests see that these go wrong. */
@Configuration
@ConditionalOnProperty("controls")
class Controls {
    /** Sends a request to the service before each commit. So the test decides when a transaction is committed. */
    @Bean
    TransactionExecutionListener heldCommits(@Value("${shop.url}") String service) {
        return new TransactionExecutionListener() {
            @Override
            public void beforeCommit(TransactionExecution transaction) {
                HttpRequest request = HttpRequest.newBuilder(URI.create(service + "/commit"))
                        .POST(HttpRequest.BodyPublishers.noBody()).build();
                try {
                    HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.discarding());
                } catch (Exception error) {
                    throw new IllegalStateException(error);
                }
            }
        };
    }

    @RestController
    @ConditionalOnProperty("controls")
    static class Mistakes {
        private final Orders orders;
        private final Orders unchecked;

        Mistakes(Redlock locks, TransactionTemplate transaction, JdbcClient database, Payments payments, Orders orders) {
            this.orders = orders;
            // No proxy checks its NEVER.
            unchecked = new Orders(locks, transaction, database, payments);
        }

        /** Commits after the release. */
        @PostMapping("/early/{order}/pay")
        @Transactional
        public void early(@PathVariable long order) throws InterruptedException {
            unchecked.pay(order);
        }

        /** The same with the recipe, which refuses it. */
        @PostMapping("/refused/{order}/pay")
        @Transactional
        public void refused(@PathVariable long order) throws InterruptedException {
            orders.pay(order);
        }
    }

    /** The application without its handler of SIGTERM. */
    static class WithoutHandler {
        public static void main(String[] arguments) {
            SpringApplication.run(ShopApplication.class, arguments);
        }
    }
}
