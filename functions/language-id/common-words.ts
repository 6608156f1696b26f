/**
 * The short everyday words of each language: articles, pronouns, prepositions, conjunctions, auxiliary verbs, question
 * words, greetings. A word list has each of them once among hundreds of thousands of words, but half of what people
 * write is made of them, and no list says so; that is why they stand here.
 */
import type { LanguageCode } from './features.ts';

const text: Record<LanguageCode, string> = {
  en: `the a an of and to in is you that it he was for on are with as his they at be this have from or by not but what
    all were we when your can said there use each which she do how their if will up other about out many then them these
    so some her would make like him into time has look two more go see no way could people my than first been who its
    now find long down day did get come made may part over new after back only work year our just know take good give
    most us any very i me am don't doesn't didn't isn't can't won't i'm it's that's you're we're they're i'll i've he's
    she's let's let hello thanks thank please yes where why here again always never today tomorrow yesterday because
    before while should must does had too also off still much such old big small little man woman think want need went`,
  fr: `le la les un une des de du et est à au aux en dans sur avec sans pour par chez sous vers entre que qui quoi où
    quand comment pourquoi combien je tu il elle on nous vous ils elles me te se lui leur y mon ma mes ton ta tes son sa
    ses notre nos votre vos leurs ce cet cette ces ne pas plus jamais rien mais ou donc car si comme ai as a avons avez
    ont suis es sommes êtes sont était étais avait avais être avoir faire fait fais dit dire va vais vas vont aller peux
    peut veux veut faut très bien bon bonne petit petite grand grande tout tous toute toutes autre même aussi encore
    déjà toujours ici là oui non merci bonjour salut aujourd'hui demain hier maintenant après avant beaucoup peu trop
    l' d' j' n' s' c' m' t' qu' jusqu' lorsqu' c'est j'ai n'est d'un d'une l'on qu'il qu'elle deux trois quel quelle
    chose homme femme jour temps`,
  de: `der die das den dem des ein eine einen einem einer eines und oder aber denn weil dass wenn als ob ist sind bin
    bist seid war waren warst sein haben habe hat hast hatte hatten wird werden wurde worden ich du er sie es wir ihr
    mich dich sich uns euch ihm ihn ihnen mir dir mein meine meinen dein deine seine seinen ihre ihren unser unsere kein
    keine keinen nicht nichts nie auch noch schon nur sehr so zu zum zur in im an am auf aus bei beim mit nach von vom
    vor über unter für gegen ohne um durch bis seit wie was wer wo wann warum wohin welche dieser diese dieses hier da
    dort heute morgen gestern jetzt immer wieder ja nein danke bitte hallo guten gut viel viele mehr kann kannst können
    konnte muss müssen will wollen soll sollen mag möchte möchten geht gehen gehe machen macht kommen kommt sagen sagt
    alle alles andere mal man doch dann zwei drei neu groß klein Jahr Tag Zeit Mann Frau Kind`,
  es: `el la los las un una unos unas de del y e o u a al en con sin por para sobre entre desde hasta hacia que quien
    qué quién cómo cuándo dónde cuál cuánto como cuando donde porque pero si sí no ni yo tú él ella usted nosotros
    nosotras vosotros ellos ellas ustedes me te se nos os le les lo mi mis tu tus su sus nuestro nuestra nuestros
    nuestras este esta estos estas ese esa esos esas aquel aquella esto eso es son soy eres somos era eran fue fueron
    ser está están estoy estás estamos estaba estar hay había ha han he has hemos tengo tiene tienes tenemos tienen
    tener hacer hace hago va voy vas vamos van ir puede puedo puedes quiero quiere quieres dice decir sabe sé muy más
    menos bien bueno buena mal mucho mucha muchos poco todo toda todos todas otro otra mismo también tampoco ya aún
    todavía siempre nunca nada algo alguien aquí allí ahora hoy ayer mañana después antes gracias hola adiós buenos días
    dos tres gran grande pequeño año día vez cosa hombre mujer casa`,
  it: `il lo la i gli le un uno una di a da in con su per tra fra del dello della dei degli delle al allo alla ai agli
    alle dal dalla dai dalle nel nello nella nei nelle sul sulla sui sulle col e ed o ma se che chi cui come quando dove
    perché quanto quale anche ancora io tu lui lei noi voi loro mi ti si ci vi ne me te sé mio mia miei mie tuo tua suo
    sua suoi sue nostro nostra vostro vostra questo questa questi queste quello quella quelli quelle è sono sei siamo
    siete era erano ero essere stato stata ho hai ha abbiamo avete hanno aveva avere faccio fa fai fanno fare fatto vado
    va vai andiamo vanno andare posso può puoi voglio vuole vuoi devo deve dice dire so sa non no sì più meno molto
    molta molti poco tanto tutto tutta tutti tutte altro altra stesso bene buono buona male già mai sempre niente nulla
    qualcosa qui qua lì là adesso ora oggi ieri domani dopo prima grazie ciao buongiorno prego l' dell' all' dall' nell'
    sull' un' d' c' c'è dov'è com'è cos'è quest' quell' po' due tre grande piccolo anno giorno cosa casa`,
  nl: `de het een en van in op aan bij met voor naar uit over om door tegen tot zonder onder tussen te ten ter dat die
    dit deze wat wie waar wanneer hoe waarom welke of maar want omdat als dan toen ik jij je hij zij ze wij we jullie u
    mij me jou hem haar ons hen hun mijn jouw zijn onze uw is ben bent was waren geweest wordt worden werd heb hebt
    heeft hebben had hadden kan kun kunt kunnen kon zal zullen zou zouden moet moeten mag mogen wil willen wilt ga gaat
    gaan doe doet doen kom komt komen zeg zegt zeggen weet zie ziet er daar hier nu niet geen niets nooit ook nog al
    alle alles veel meer weinig heel erg zo zeer wel toch altijd weer vandaag morgen gisteren ja nee dank bedankt hallo
    dag goed goede mooi groot grote klein kleine nieuw nieuwe oud oude ander andere zelf twee drie jaar tijd man vrouw
    kind mensen iets iemand even graag eens`,
  pt: `o a os as um uma uns umas de do da dos das e ou em no na nos nas num numa por pelo pela pelos pelas para com sem
    sobre entre desde até ao aos à às que quem qual quando onde como quanto porque mas se não sim nem eu tu você ele ela
    nós vocês eles elas me te lhe lhes meu minha meus minhas teu tua seu sua seus suas nosso nossa dele dela este esta
    estes estas esse essa isso isto aquele aquela aquilo é são sou és somos era eram foi foram ser está estão estou
    estás estamos estava estar há havia tenho tem têm tens temos tinha ter faço faz fazer vou vai vais vamos vão ir
    posso pode podes quero quer queres diz dizer sei sabe muito muita muitos muitas pouco mais menos bem bom boa mau
    mal tudo todo toda todos todas outro outra mesmo também já ainda sempre nunca nada algo alguém aqui ali lá agora
    hoje ontem amanhã depois antes obrigado obrigada olá bom dia boa noite dois três grande pequeno pequena ano dia vez
    coisa homem mulher casa então só lhe deste desta disso`,
  pl: `i a w we z ze na do od o u po za pod nad przed przy przez bez dla między się nie tak że żeby ale lub albo czy jeśli
    bo więc gdy kiedy gdzie jak co kto dlaczego ile który która które jaki jaka jakie ja ty on ona ono my wy oni one
    mnie mi cię ci go mu ją jej jego nas nam was wam ich im mój moja moje twój twoja twoje swój swoją nasz nasza wasz
    ten ta to te tego tej tym tych tę tam tu tutaj jest jestem jesteś jesteśmy są był była było byli były być będzie
    będę będą mam masz ma mamy macie mają mieć miał miała może mogę możesz można chcę chce chcesz muszę musi wiem wie
    robi robię idę idzie jeszcze już tylko też także bardzo dużo mało więcej trochę wszystko wszyscy nic nikt nigdy
    zawsze teraz dziś dzisiaj jutro wczoraj potem dobrze dobry dobra dzień dziękuję proszę cześć dwa trzy nowy nowa duży
    duża mały mała rok czas dom człowiek kobieta pan pani lat niż sobie siebie`,
};

/**
 * Words of a language, in lower or upper case as written. A final apostrophe joins the word to the next, as in l'école.
 */
export function commonWords(language: LanguageCode): string[] {
  return text[language].split(/\s+/);
}
