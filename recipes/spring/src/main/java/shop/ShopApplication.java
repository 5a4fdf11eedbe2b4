package shop;

// --8<-- [start:application]
import dev.redlock.Redlock;
import java.util.List;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.scheduling.annotation.EnableScheduling;
import sun.misc.Signal;

@SpringBootApplication
@EnableScheduling
class ShopApplication {
    public static void main(String[] arguments) {
        ConfigurableApplicationContext context = SpringApplication.run(ShopApplication.class, arguments);
        // Without this, SIGTERM runs all shutdown hooks of the JVM at the same time: the one that releases all locks,
        // and Spring's, which lets requests end. With it, requests and jobs end first.
        Signal.handle(new Signal("TERM"), signal -> System.exit(SpringApplication.exit(context)));
    }

    @Bean // one for the process; Spring calls its close()
    Redlock locks(@Value("${redlock.urls}") List<String> urls) {
        return new Redlock(urls);
    }
}
