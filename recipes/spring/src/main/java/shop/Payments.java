package shop;

import java.time.LocalDate;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.stereotype.Component;
import org.springframework.web.client.RestClient;

/** Another service. */
@Component
class Payments {
    private final RestClient service;

    Payments(RestClient.Builder builder, @Value("${shop.url}") String url) {
        service = builder.baseUrl(url).build();
    }

    /** Charges the customer. The key of the request lets the service find a repetition. */
    void charge(long order, long token) {
        service.post().uri("/orders/{order}/charge", order)
                .header("Idempotency-Key", "order-" + order)
                .header("Fencing-Token", Long.toString(token))
                .retrieve().toBodilessEntity();
    }

    String report(LocalDate day) {
        return service.post().uri("/reports/{day}", day).retrieve().body(String.class);
    }
}
