package shop;

// --8<-- [start:controller]
import dev.redlock.LockLost;
import dev.redlock.LockTimeout;
import dev.redlock.Unavailable;
import java.util.Map;
import org.springframework.http.ResponseEntity;
import org.springframework.web.bind.annotation.ExceptionHandler;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.bind.annotation.RestControllerAdvice;

@RestController
class OrdersController {
    private final Orders orders;

    OrdersController(Orders orders) {
        this.orders = orders;
    }

    @PostMapping("/orders/{order}/pay")
    Map<String, Boolean> pay(@PathVariable long order) throws InterruptedException {
        orders.pay(order);
        return Map.of("paid", true);
    }
}

@RestControllerAdvice
class LockErrors {
    @ExceptionHandler
    ResponseEntity<Map<String, String>> busy(LockTimeout error) {
        return ResponseEntity.status(409).header("Retry-After", "2").body(Map.of("error", "busy"));
    }

    @ExceptionHandler({Unavailable.class, LockLost.class})
    ResponseEntity<Map<String, String>> unavailable() {
        return ResponseEntity.status(503).header("Retry-After", "5").body(Map.of("error", "no locks"));
    }
}
